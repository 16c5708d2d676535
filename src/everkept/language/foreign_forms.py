"""What people say of the past in German, Spanish and French, written without accents.

All of it is read as the English is: see `past_forms`.
"""

from everkept.language.forms import Form

PARTS = {
    "<wir>": r"(wir|ich|du)",
    "<haben>": r"(haben|hatten|habe|hatte|hast|hattest)",
    "<damals>": r"(gestern|letztes mal|das letzte mal|beim letzten mal|letzte woche|zuletzt|neulich"
    r"|vorher|frueher|fruher|damals)",
    "<beschlossen>": r"(beschlossen|entschieden|vereinbart|besprochen|gesagt|ausgemacht|festgelegt"
    r"|abgemacht|gewahlt|gewaehlt|geplant)",
    "<antes>": r"(la ultima vez|la vez pasada|la vez anterior|anteriormente|la semana pasada|ayer"
    r"|el otro dia)",
    "<on avait>": r"(avait-on|avions-nous|avons-nous|a-t-on|avais-je|ai-je|avais-tu|as-tu|on avait"
    r"|on a|nous avions|nous avons|j'avais|j'ai|tu avais)",
    "<decide>": r"(decide|convenu|dit|choisi|retenu|prevu)",
}
FORMS: tuple[Form, ...] = (
    ("discussion", ("was ha",), r"was <haben> <wir> <topic?> <beschlossen>"),
    ("implementation", ("wie ha",), r"wie <haben> <wir> <topic>"),
    (
        "discussion",
        ("warum ha", "wieso ha", "weshalb ha"),
        r"(warum|wieso|weshalb) <haben> <wir> <topic>",
    ),
    ("discussion", ("wann ha",), r"wann <haben> <wir> <topic>"),
    ("memory", ("erinner",), r"erinnerst du dich( noch)?( daran| an)?,? <topic>"),
    ("memory", ("du noch",), r"(weisst|weist) du noch,? <topic>"),
    ("memory", ("nicht mehr",), r"ich weiss nicht mehr,? <topic>"),
    (
        "memory",
        ("dir schon", "dir bereits"),
        r"(ich habe|hab|habe ich) dir (schon|bereits)( mal)? gesagt[:,]? <topic>",
    ),
    (
        "last work",
        ("letzte", "zuletzt"),
        r"(letztes mal|das letzte mal|beim letzten mal|zuletzt),?( als)?( haben| hatten)? <wir>"
        r" <topic>",
    ),
    (
        "overview",
        ("was haben", "was hatten", "was hab"),
        r"was (haben|hatten|habe|hab) <wir>( denn)? <damals>( so)?( hier)? (gemacht|getan)<end>",
    ),
    (
        "overview",
        ("wo war", "wo sind"),
        r"wo (waren wir|war ich|sind wir)( denn)?( <damals>)?( stehen ?geblieben| dran)?<end>",
    ),
    ("overview", ("aufgehort", "aufgehoert"), r"wo haben wir( <damals>)? aufgeho(e)?rt<end>"),
    (
        "discussion",
        ("que deci", "que acor", "que diji", "que habl", "que eleg"),
        r"que (decidimos|acordamos|dijimos|hablamos|elegimos)"
        r"( (sobre|acerca de|con|para|de|en))* <topic>",
    ),
    (
        "discussion",
        ("que habiamos", "que hemos"),
        r"que (habiamos|hemos) (decidido|acordado|dicho|hablado|elegido)"
        r"( (sobre|acerca de|con|para|de|en))* <topic>",
    ),
    ("implementation", ("como ",), r"como( lo)? (hicimos|hice|habiamos|hemos) <topic>"),
    ("implementation", ("como ",), r"como <topic?> <antes>"),
    ("discussion", ("por que ",), r"por que (decidimos|elegimos|hicimos|pusimos|habiamos) <topic>"),
    (
        "memory",
        ("recuerdas", "acuerdas"),
        r"(te acuerdas|recuerdas)( de)?( cuando| como| que| por que)? <topic>",
    ),
    ("memory", ("ya te ",), r"ya te (dije|conte|comente|habia dicho)( antes)?( que)?[:,]? <topic>"),
    ("last work", ("ultima vez que",), r"la ultima vez que \w+( (en|con))? <topic>"),
    ("overview", ("que hicimos", "que hice"), r"que (hicimos|hice) <antes><end>"),
    (
        "overview",
        ("donde",),
        r"(por )?donde (nos quedamos|lo dejamos|quedamos|ibamos|estabamos)( <antes>)?<end>",
    ),
    (
        "discussion",
        ("qu'", "quoi"),
        r"(qu'(est-ce qu')?|quoi )<on avait> <decide>( (pour|sur|de|du|des|concernant))* <topic>",
    ),
    (
        "implementation",
        ("comment a", "comment o", "comment n", "comment j", "comment e", "comment t"),
        r"comment( est-ce qu(e |'))?( )?<on avait> <topic>",
    ),
    ("implementation", ("derniere fois",), r"comment <topic?> la derniere fois"),
    ("discussion", ("pourquoi ",), r"pourquoi( est-ce qu(e |'))?( )?<on avait> <topic>"),
    (
        "memory",
        ("souvien", "rappelle", "souvenez"),
        r"(tu te souviens|te souviens-tu|vous souvenez-vous|tu te rappelles|te rappelles-tu)"
        r"( (de|du|des|quand|comment|pourquoi))? <topic>",
    ),
    ("memory", ("deja dit",), r"je (t'ai|te l'ai|vous ai|vous l'ai) deja dit( que)?[:,]? <topic>"),
    ("last work", ("derniere fois",), r"la derniere fois (que |qu')(nous|on|j'|je) ?\w+ <topic>"),
    (
        "overview",
        ("fait hier", "fait la derniere"),
        r"(qu'(est-ce qu')?|quoi )<on avait> fait (hier|la derniere fois)<end>",
    ),
    (
        "overview",
        ("etions", "etait", "arrete"),
        r"ou (en etions-nous|en etait-on|on en etait|en etais-je|nous sommes-nous arretes"
        r"|s'est-on arretes?|on s'est arretes?)<end>",
    ),
)

# As in English: a word that must be there, the hint, and what makes it mean something else.
INDICATORS = (
    ("wieder", r"wieder", r"(?:immer|hin und) wieder|wieder und wieder"),
    ("erneut", r"erneut", ""),
    ("hnlich wie", r"(?:ae|a)hnlich wie", ""),
    ("genauso wie", r"genauso wie", ""),
    (
        "wie ",
        r"(?:so )?wie (?:beim letzten mal|letztes mal|vorher|zuvor|damals|frueher|fruher)",
        "",
    ),
    ("de nuevo", r"de nuevo", ""),
    ("otra vez", r"otra vez", r"una y otra vez"),
    ("similar a", r"similar al?", ""),
    ("parecido a", r"parecido al?", ""),
    ("como ", r"(?:como|igual que) (?:antes|la ultima vez|la vez pasada)", ""),
    ("igual que", r"igual que (?:antes|la ultima vez|la vez pasada)", ""),
    ("misma", r"de la misma (?:manera|forma)", ""),
    ("nouveau", r"a nouveau|de nouveau", ""),
    ("encore une fois", r"encore une fois", ""),
    ("comme ", r"comme (?:avant|la derniere fois|precedemment|auparavant)", ""),
    ("meme ", r"de la meme (?:maniere|facon)", ""),
    ("similaire", r"similaires? (?:a|au|aux)", ""),
)
