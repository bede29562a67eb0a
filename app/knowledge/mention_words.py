"""Words by which names are told from other words. English."""

from __future__ import annotations

_STOP_TEXT = """
a about above after again all already also am an and any anybody anyone anything are as ask at back be because been before
being below between bring both but by bye call can check cheers come compare confirm could create current currently day dear
did display do does doing done don down draft each either email else ever every everyone everything explain few find first
fix for from get give go good got great had has have having he hello help hence her here hers hey hi him his hm how however
i if in instead into is it its itself just keep know last late later latest least less let like list look made make many may
maybe me mention message mine more most much must my near need neither never new next no nobody none nope nor not nothing
now of off ok okay on once one only open or order orders other our ours out over own per perhaps please previous print pull
put quite read really regarding remember remind reply right same say see send set she should show since so some someone
something soon sorry still subject such summarise summarize sure take tell than thank thanks that the their theirs them then
there these they thing things think this those though through thus till to today tomorrow tonight too translate try under
unless until up update upon us use used very want was we week well were what whatever when where whether which while who
whom whose why will with within without would write yeah yes yesterday yet you your yours
"""
STOP = frozenset(_STOP_TEXT.split())
"""Words that are no name by themselves: the small ones, and those that begin a question or a request."""
_DATES_TEXT = """
monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun january february march
april june july august september october november december jan feb mar apr jun jul aug sep sept oct nov dec christmas easter
q1 q2 q3 q4 am pm utc
"""
DATES = frozenset(_DATES_TEXT.split())
JOINS = frozenset(("of", "de", "da", "do", "del", "di", "du", "van", "von", "der", "den", "la", "le", "the"))
"""Small words inside a name."""
SHORTENED = frozenset(("st", "dr", "mr", "mrs", "ms", "inc", "co", "corp", "ltd", "bros", "no", "prof"))
"""After these a full stop ends no sentence."""
_COMPOUND_TEXT = """
service support success base experience portal manager side id ids number numbers name names list type types data team
facing friendly
"""
COMPOUND = frozenset(_COMPOUND_TEXT.split())
"""After a noun for a kind of things these make another word of it: "the customer service"."""

_VERBS_TEXT = """
agreed asked asks called calls came can cancelled complained complains confirmed emailed has had is likes mentioned moved needed
needs ordered owes paid pays prefers promised refused renewed replied said says sent signed told wanted wants was will would
wrote
"""
VERBS = frozenset(_VERBS_TEXT.split())
"""What one who has a name does: before these a sentence's first word is one, too."""
