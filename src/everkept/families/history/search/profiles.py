"""How past conversations are searched: one profile for each question that is asked of them."""

from everkept.core.records import Weights
from everkept.families.history.model import CODE, TURN
from everkept.retrieval.profile import Parts, Profile

# Tuned on public conversations: who said it and what stands beside it count a little more, and
# less, than for memories.
RECALL = Profile(
    kinds=(TURN, CODE),
    weights=Weights(context=0.5),  # what was said just before and after
    reading="any",
    strategy="hybrid",
    parts=Parts(author=0.25, neighbour=0.3),
)
# An error is known by its words, and a description by its meaning; it is one turn that has it.
SIMILAR = Profile(
    kinds=(TURN,),
    weights=Weights(context=0.5),
    reading="any",
    strategy="hybrid",
    parts=Parts(keyword=0.4, meaning=0.4, author=0.0, date=0.1, neighbour=0.2),
)
# A name in code is that name or another one; who wrote it and when says little about it.
CODE_SEARCH = Profile(
    kinds=(CODE,),
    weights=Weights(name=3.0, context=0.25),
    reading="any",
    strategy="hybrid",
    parts=Parts(keyword=0.5, meaning=0.4, author=0.05, date=0.1, neighbour=0.0),
)
