"""Words that no search counts, of English and of other languages.

The lists decide rankings: a change of one is a change of what is found.
"""

_ENGLISH = """
    a about all also am an and any are arent as at be because been being but by can cant could
    couldnt did didnt do does doesnt doing dont for from had has hasnt have havent he her here hers
    him his how hows i if im in into is isnt it its ive lets me my no nor not of on or our ours
    please shall she should shouldnt so some such tell than that thats the their theirs them then
    there theres these they theyre this those to too very was wasnt we were werent what whats when
    where wheres which while who whom whos whose why will with wont would wouldnt you your youre
    yours youve
"""
_GERMAN = """
    aber als also am an auch auf aus bei bin bis bitte da damit dann das dass dein dem den
    denn der des dich die dies diese diesem diesen dieser dieses dir doch du durch ein eine
    einem einen einer eines er es etwas euch für gegen gibt habe haben hat hatte hatten hier
    ich ihm ihn ihr ihre im ist ja jede jedem jeden jeder jedes jetzt kann kannst kein keine
    man mehr mein meine mich mir mit muss nach nicht noch nun nur ob oder ohne schon sein
    seine sehr sich sie sind sobald soll sollte sollten statt über um und uns unser unter vom
    von vor war waren warum was weil welche welcher welches wenn wer werden wie wieder wir
    wird wo wurde würde zu zum zur
"""
_FRENCH = """
    ai alors au aucun aussi autre aux avant avec avez avoir avons ce cela ces cet cette comme
    comment contre dans de depuis des donc du elle elles en encore entre est et étaient était
    été être eu eux faire fait faut il ils je la le les leur leurs lui ma mais mes moi mon
    même ne nos notre nous on ont ou où par pas peut plus pour pourquoi qu quand que quel
    quelle quelles quels qui quoi sa sans sera ses si son sont sous sur ta te tes toi ton tous
    tout toute toutes très tu un une vos votre vous
"""
STOP_WORDS = frozenset(_ENGLISH.split())
FOREIGN_STOP_WORDS = frozenset((*_GERMAN.split(), *_FRENCH.split()))
