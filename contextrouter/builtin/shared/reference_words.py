"""Words by which a question refers to what was said before, in five languages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from contextrouter.text.stop_words import REQUEST_WORDS


class References(NamedTuple):
    """The words of one language, in lower case. `function` are all words that say nothing of the subject."""

    openers: tuple[tuple[str, ...], ...]  # a question that begins with one goes on from another
    pronouns: frozenset[str]
    persons: frozenset[str]  # pronouns that stand for a name of the question where it has one
    possessives: frozenset[str]
    demonstratives: frozenset[str]  # refer back, except before a time, and before a relative clause
    conjunctive: frozenset[str]  # demonstratives that also join sentences: "that"
    last: frozenset[str]  # refer back at the end of a question
    conjunctions: frozenset[str]
    exempt: frozenset[str]  # a demonstrative before one of them does not refer back: "this week"
    impersonal: re.Pattern[str]  # where a pronoun stands for nothing: "is it possible to"
    definition: re.Pattern[str]  # the beginning of a question for what something is: "What is a"
    function: frozenset[str]


def _references(
    *,
    openers: str,
    pronouns: str,
    conjunctions: str,
    function: str,
    exempt: str,
    persons: str = "",
    possessives: str = "",
    demonstratives: str = "",
    conjunctive: str = "",
    last: str = "",
    impersonal: str = "(?!)",
    definition: str = "(?!)",
) -> References:
    phrases = tuple(tuple(phrase.split()) for phrase in openers.split(","))
    lists = (
        function,
        pronouns,
        persons,
        possessives,
        demonstratives,
        conjunctive,
        last,
        conjunctions,
        openers,
    )
    return References(
        openers=phrases,
        pronouns=frozenset(pronouns.split()),
        persons=frozenset(persons.split()),
        possessives=frozenset(possessives.split()),
        demonstratives=frozenset(demonstratives.split()),
        conjunctive=frozenset(conjunctive.split()),
        last=frozenset(last.split()),
        conjunctions=frozenset(conjunctions.split()),
        exempt=frozenset(exempt.split()),
        impersonal=re.compile(impersonal, re.IGNORECASE),
        definition=re.compile(definition, re.IGNORECASE),
        function=frozenset(word for text in lists for word in text.replace(",", " ").split()),
    )


_ENGLISH = _references(
    openers="and, or, but, also, then, plus, what about, how about, what else, who else, where else, why not,"
    " anything else, how so, tell me more, more about, same for, what if not",
    pronouns="it there",
    persons="he him she they them",
    possessives="his her hers its their theirs",
    demonstratives="this these those",
    conjunctive="that",
    conjunctions="and or but when while if because since before after although though so than whether where"
    " that as who which what how until unless",
    exempt="year month week weekend quarter morning afternoon evening night summer winter spring autumn"
    " decade century time who which that of monday tuesday wednesday thursday friday saturday sunday",
    impersonal=r"\b(?:is|was|isn't|be|would|will) it (?:\w+ ){1,3}(?:to|that|if|for)\b"
    r"|\bit (?:takes?|costs?|hurts?|helps?|matters?|make sense) (?:\w+ ){0,2}(?:to|if|when|that|whether)\b"
    r"|\b(?:time|day|date|year) is it\b|\b(?:does|did|will|can) it (?:rain|snow)\b"
    r"|\b(?:is|are|was|were|do|does|will) there\b|\bthere (?:is|are|was|were)\b",
    definition=r"\W*(?:what|who)(?:['’]s| (?P<one>is|was)| are| were) "
    r"(?!the\b|my\b|your\b|our\b)(?P<article>an? )?",
    function=" ".join(REQUEST_WORDS)
    + " s t d m ll re ve don doesn didn isn wasn else too here again ever really exactly now more ones one"
    " me same other another yes no ok okay thanks thank hello hi i'd",
)
_GERMAN = _references(
    openers="und, oder, aber, auch, dann, sonst, was ist mit, wie ist es mit, wie steht es mit, was noch, wer"
    " noch, wo noch, warum nicht, mehr dazu, erzähl mehr",
    persons="er sie ihn ihm ihnen",
    pronouns="es dort davon dafür dazu darüber daran darauf dabei dadurch darin dagegen deren dessen",
    possessives="seine seinen seiner seinem seines ihre ihren ihrer ihrem ihres",
    demonstratives="dies diese dieser dieses diesen diesem jene jener jenes jenen jenem",
    last="das die der den dem denen damit danach da",
    conjunctions="und oder aber wenn weil dass ob als bevor nachdem während obwohl sondern damit denn wo",
    exempt="jahr jahres monat monats woche wochenende quartal morgen nachmittag abend nacht sommer winter"
    " frühling herbst jahrzehnt jahrhundert mal montag dienstag mittwoch donnerstag freitag samstag"
    " sonntag",
    impersonal=r"\b(?:gibt|gab|geht|dauert|kostet|regnet|schneit|kommt|handelt|ging) es\b"
    r"|\bes (?:gibt|gab|geht|geben)\b"
    r"|\bspät ist es\b|\bist es (?:\w+ ){0,2}\w+,? (?:\w+ ){0,8}?(?:zu|dass|wenn)\b",
    definition=r"\W*(?:was|wer) (?:(?P<one>ist|war)|sind|waren) "
    r"(?!der\b|die\b|das\b|mein|dein|unser)(?P<article>eine? )?",
    function="ein eine einen einer einem eines der die das den dem des ich du wir ihr mich mir dich dir uns"
    " euch mein meine meinen dein deine unser unsere ist sind war waren bin bist sein hat haben habe hatte"
    " hatten wird werden wurde wurden worden kann können konnte muss müssen musste soll sollte will"
    " wollen darf dürfen mag möchte was wer wie wo wann warum wieso weshalb welche welcher welches"
    " welchen welchem woher wohin womit wofür wozu wovon woran worüber wem wen wessen viel viele in im"
    " an am auf aus bei beim mit von vom zu zum zur für über unter um durch gegen ohne vor nach seit bis"
    " zwischen nicht kein keine keinen nur schon noch sehr man sich so mal bitte ja nein doch denn"
    " eigentlich genau gibt gab es mehr noch alle alles etwas",
)
_FRENCH = _references(
    openers="et, ou, mais, aussi, sinon, alors, qu en est il, qu en est, quoi d autre, qui d autre, pourquoi"
    " pas, quid",
    pronouns="",
    persons="il elle ils elles lui leur",
    possessives="son sa ses leurs",
    demonstratives="ça cela ceci celui celle ceux celles cet cette ces",
    last="y là",
    conjunctions="et ou mais quand si parce lorsque car puisque comme que où",
    exempt="année mois semaine trimestre matin après soir nuit été hiver printemps automne décennie siècle"
    " fois qui que dont de lundi mardi mercredi jeudi vendredi samedi dimanche an",
    impersonal=r"\by a-t-il\b|\bil y a\b|\bfaut-il\b|\bil faut\b|\bheure est-il\b|\bpleut-il\b|\bil pleut\b"
    r"|\bs'agit-il\b|\bil s'agit\b|\bexiste-t-il\b|\bvaut-il\b|\best-il (?:\w+ ){1,3}(?:de|que|d)\b",
    definition=r"\W*(?:qu['’]est[- ]ce qu(?:['’]|e )|c['’]est quoi |qui (?:(?P<one>est|était)|sont) )"
    r"(?!l[ea]s? |l['’])(?P<article>une? )?",
    function="un une le la les l de des du d je tu nous vous on me m te t se s moi toi mon ma mes ton ta tes"
    " notre nos votre vos est sont était étaient suis es êtes être a ai as avez avons ont avait fait"
    " faire peut peux pouvez doit dois faut va vais quoi qui que qu quel quelle quels quelles comment"
    " combien quand où pourquoi lequel laquelle ce c à au aux en dans sur sous avec sans pour par chez"
    " entre vers depuis ne n pas plus très bien aussi encore déjà j y oui non merci svp autre tout tous"
    " toute toutes beaucoup temps",
)
_SPANISH = _references(
    openers="y, e, o, pero, también, entonces, qué tal, qué más, quién más, dónde más, por qué no,"
    " qué pasa con, qué hay de",
    pronouns="allí ello",
    persons="él ella ellos ellas",
    possessives="su sus suyo suya",
    demonstratives="eso esto esos esas ese esa este esta estos estas aquello aquel aquella aquellos aquellas",
    last="ahí",
    conjunctions="y e o pero cuando si porque mientras que aunque donde como",
    exempt="año mes semana trimestre mañana tarde noche verano invierno primavera otoño década siglo vez que"
    " de lunes martes miércoles jueves viernes sábado domingo",
    definition=r"\W*(?:qué|quién|quiénes) (?:(?P<one>es|era|fue)|son) "
    r"(?!el |la |los |las |tu |mi )(?P<article>una? )?",
    function="un una unos unas el la los las lo al del de yo tú me te se nos os mi mis tu tus nuestro nuestra"
    " es son era eran fue fueron soy eres ser está están estaba hay ha han he has había haber tiene tienen"
    " tengo hace hacer puede puedo pueden debe debo qué quién quiénes cuál cuáles cómo cuánto cuánta"
    " cuántos cuántas cuándo dónde por para a ante con sin en entre hacia hasta desde sobre no ni ya muy"
    " más menos sí le les también favor gracias otro otra todo toda todos todas tiempo",
)
_ITALIAN = _references(
    openers="e, ed, o, ma, anche, allora, inoltre, che ne dici di, cos altro, chi altro, dove altro, perché"
    " no, che mi dici di",
    pronouns="esso essa essi esse",
    persons="lui lei loro egli ella",
    possessives="suo sua suoi sue",
    demonstratives="questo questa questi queste quello quella quelli quelle ciò quel quei quegli",
    last="lì là",
    conjunctions="e ed o ma quando se perché mentre che poiché dove come",
    exempt="anno mese settimana trimestre mattina pomeriggio sera notte estate inverno primavera autunno"
    " decennio secolo volta che di lunedì martedì mercoledì giovedì venerdì sabato domenica",
    definition=r"\W*(?:(?:che )?cos['’](?P<one>è|era)|(?:che cosa|chi) (?:è|era|sono)) "
    r"(?!il |la |lo |i |gli |le |l['’])(?P<article>un[oa]? |un['’])?",
    function="un uno una il lo la i gli le l di a da in con su per tra fra del dello della dei degli delle al"
    " allo alla ai agli alle dal dalla dai nel nella nei sul sulla col io tu noi voi mi ti si ci vi ne"
    " me te mio mia miei mie tuo tua nostro nostra è sono era erano sei essere ha hanno ho hai avere"
    " aveva fa fare può posso possono deve devo che chi cosa cos quale quali come quanto quanta quanti"
    " quante quando dove perché non né più meno molto già ancora sì no anche c dov com qual grazie"
    " favore altro altra tutto tutta tutti tutte d tempo",
)
REFERENCES: Mapping[str, References] = {
    "en": _ENGLISH,
    "de": _GERMAN,
    "fr": _FRENCH,
    "es": _SPANISH,
    "it": _ITALIAN,
}
"""Language -> its words. Of languages that have as many words in a question, the first one counts."""
