"""Words that tell nothing about what a text is about, besides those of English."""

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
# Of programming languages; what is written in them is told by other words.
_CODE = """
    args await bool const def elif false fn func impl int let nil none null pub return self
    str struct true undefined var void
"""
FOREIGN_STOP_WORDS = frozenset((*_GERMAN.split(), *_FRENCH.split()))
CODE_WORDS = frozenset(_CODE.split())
