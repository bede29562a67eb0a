"""The rules: what a clause of the user's must look like to say something about the user, and what it then says.

Each is matched against a whole clause; `…` in a pattern stands for the value, which a check must accept. Seed 001 §4.2
names the first of them ("I prefer", "I like", "I want", "don't"; "we are", "our business", "we sell", "located in").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.memory.candidate import Kind
from app.memory.extract_values import (
    LANGUAGES,
    NATIONALITIES,
    Check,
    allergen,
    animal_or_person_name,
    food,
    free,
    languages,
    name,
    place,
    thing,
    trade,
)

_ADVERBS = (
    r"(?:(?:really|also|just|absolutely|always|usually|generally|mostly|mainly|currently|actually|personally|still|now|only|truly|"
    r"definitely|especially|particularly|quite|totally|strictly|originally|recently|already|kind of|kinda|sort of|do|very much|"
    r"very|much|so|strongly|genuinely|honestly|both|temporarily|presently|basically|simply|often|sometimes|deeply|seriously|"
    r"severely|deathly|highly|extremely|mildly|slightly|a bit) )*"
)
_MACROS = {
    "I ": rf"(?:i|we) {_ADVERBS}",
    "AM ": rf"(?:i'm|im|i am|we're|we are) {_ADVERBS}",
    "HAVE ": rf"(?:i've(?: got)?|i have(?: got)?|i got|we've(?: got)?|we have) {_ADVERBS}",
    "DONT ": rf"(?:i|we) {_ADVERBS}(?:don't|do not|dont) {_ADVERBS}",
    "NAMED ": r"(?:called|named|(?:whose|her|his|its) name is)",
    "KIN": (
        r"(?:(?:older|younger|elder|eldest|oldest|youngest|little|big|twin|baby|step|half|ex|late|only|first|second)[- ]?)?"
        r"(?:wife|husband|partner|girlfriend|boyfriend|fianc[eé]e?|spouse|mother|mom|mum|father|dad|son|daughter|child|kid|"
        r"baby|brother|sister|grandmother|grandma|grandfather|grandpa|grandson|granddaughter|uncle|aunt|cousin|niece|nephew|"
        r"mother-in-law|father-in-law|brother-in-law|sister-in-law|stepmother|stepfather|stepson|stepdaughter)"
    ),
    "PET": r"(?:dog|cat|puppy|kitten|horse|pony|rabbit|bunny|parrot|budgie|hamster|guinea pig|turtle|tortoise|goldfish|ferret|snake)",
    "DIET": (
        r"(?:(?:(?:strict|lifelong|ethical|lacto|ovo|lacto-ovo)[- ])?(?:vegetarian|vegan|pescatarian|pescetarian|flexitarian|"
        r"carnivore|omnivore|fruitarian)|gluten[- ](?:free|intolerant)|dairy[- ]free|lactose[- ]intolerant|(?:a )?c(?:o)?eliac|"
        r"diabetic|(?:a )?teetotal(?:er|ler)?|sober|kosher|halal|keto)"
    ),
    "STYLE": (
        r"(?:answers?|responses?|replies|reply|explanations?|summar(?:y|ies)|messages?|emails?|posts?|examples?|comments?|"
        r"recommendations?|suggestions?|articles?|reports?|reviews|outputs?|code samples?|code examples?|newsletters?|captions?)"
    ),
    "ILLNESS": (
        r"(?:(?:type (?:1|2|one|two) )?diabetes|asthma|c(?:o)?eliac(?: disease)?|ibs|migraines?|adhd|add|dyslexia|epilepsy|eczema|"
        r"psoriasis|arthritis|hypertension|high blood pressure|low blood pressure|high cholesterol|anemia|anaemia|insomnia|"
        r"depression|anxiety|ptsd|ocd|autism|tinnitus|crohn's(?: disease)?|lupus|scoliosis|sciatica|hay fever|gout|"
        r"hypothyroidism|endometriosis|pcos|multiple sclerosis|ms|chronic (?:pain|fatigue|back pain)|a bad (?:back|knee)|"
        r"a pacemaker|a heart condition|a thyroid (?:condition|disorder)|acid reflux|sleep apn(?:o)?ea|vertigo)"
    ),
    "…": r"(?P<v>.+)",
}
_MACRO = re.compile("|".join(sorted(map(re.escape, _MACROS), key=len, reverse=True)))


@dataclass(frozen=True, slots=True)
class Rule:
    """`content` is filled from the pattern's groups; `check` judges and trims the group `v`. `subject` may name a group."""

    pattern: re.Pattern[str]
    content: str
    kind: Kind
    tag: str
    importance: float
    check: Check
    predicate: str | None
    confidence: float
    subject: str
    correction: bool
    negative: bool


def _rule(
    pattern: str,
    content: str,
    tag: str,
    importance: float,
    *,
    kind: Kind = "fact",
    check: Check = thing,
    predicate: str | None = None,
    confidence: float = 0.9,
    subject: str = "user",
    correction: bool = False,
    negative: bool = False,
) -> Rule:
    compiled = re.compile(_MACRO.sub(lambda m: _MACROS[m[0]], pattern), re.IGNORECASE)
    return Rule(compiled, content, kind, tag, importance, check, predicate, confidence, subject, correction, negative)


def _name_rules() -> list[Rule]:
    called = "(?:please )?(?:you (?:can|may|should) )?(?:just )?(?:please )?"
    out = [
        _rule(r"my (?:full |first |given |real |actual |legal )?name(?:'s| is|:| =) …", "Name is {v}", "name", 0.9, check=name, predicate="name"),
        _rule(r"my (?:last name|surname|family name)(?:'s| is|:) …", "Last name is {v}", "name", 0.8, check=name, predicate="last_name"),
        _rule(r"my (?:nickname|preferred name)(?:'s| is|:) …", "Wants to be called {v}", "name", 0.9, kind="instruction", check=name, predicate="called"),
        _rule(r"my pronouns are …", "Pronouns are {v}", "name", 0.9, check=free, predicate="pronouns"),
        _rule(r"(?:i have )?changed my name to …", "Name is {v}", "name", 0.9, check=name, predicate="name", correction=True),
        _rule(r"i(?:'ve| have)? changed my name to …", "Name is {v}", "name", 0.9, check=name, predicate="name", correction=True),
    ]
    for pattern in (
        called + r"(?:call|address) me(?: as)? …",
        called + r"refer to me as …",
        r"(?:everyone|everybody|people|(?:my )?friends|most people|they)(?: all)?(?: just)? calls? me …",
        r"i go by …",
        r"i(?:'d| would)? (?:like|prefer|want) (?:you )?to (?:be called|be addressed as|go by|call me) …",
        r"i prefer (?:being called|to be called) …",
        r"(?:please )?always call me …",
    ):
        out.append(_rule(pattern, "Wants to be called {v}", "name", 0.9, kind="instruction", check=name, predicate="called"))
    out.append(
        _rule(
            r"(?:please )?(?:don't|do not|never|stop) call(?:ing)? me …", "Does not want to be called {v}", "name", 0.8,
            kind="instruction", check=name, negative=True,
        )
    )
    return out


def _home_rules() -> list[Rule]:
    live = r"(?:live|reside|stay|dwell)(?: (?:with [^,]{1,30}|alone|together))? (?:in|at|near|on|outside|outside of|just outside|close to|by)"
    out = [
        _rule(rf"I {live} …", "Lives in {v}", "home", 0.85, check=place, predicate="lives_in"),
        _rule(r"AM (?:living|residing|based|located|situated|settled)(?: (?:with [^,]{1,30}|alone|together|out))? (?:in|near|at|outside|outside of|out of) …", "Lives in {v}", "home", 0.85, check=place, predicate="lives_in"),
        _rule(r"(?:i've|i have|we've|we have) (?:been living|lived) (?:here )?in …", "Lives in {v}", "home", 0.85, check=place, predicate="lives_in"),
        _rule(r"my (?:home|house|home town|flat|apartment|current city|city|place) is (?:in|at|near) …", "Lives in {v}", "home", 0.8, check=place, predicate="lives_in"),
        _rule(r"(?:i|we)(?:'ve| have)?(?: just| recently| now)? (?:moved|relocated|emigrated)(?: back| out| over| here| house)?(?: from [\w .'-]{1,40})? to …", "Lives in {v}", "home", 0.9, check=place, predicate="lives_in", correction=True),
        _rule(r"AM (?:moving|relocating) (?:back )?to …", "Is moving to {v}", "home", 0.7, check=place, kind="event", confidence=0.8),
        _rule(r"DONT live in …", "Does not live in {v}", "home", 0.8, check=place, negative=True),
        _rule(r"(?:i|we) no longer live in …", "No longer lives in {v}", "home", 0.85, check=place, negative=True, correction=True),
        _rule(r"AM (?:originally )?from …", "Is from {v}", "origin", 0.7, check=place, predicate="from"),
        _rule(r"(?:i|we) (?:originally )?(?:come|came|hail) from …", "Is from {v}", "origin", 0.7, check=place, predicate="from"),
        _rule(r"(?:i|we) (?:grew up|was raised|were raised|was brought up) in …", "Grew up in {v}", "origin", 0.6, check=place, predicate="grew_up_in"),
        _rule(r"(?:i was|i'm) born (?:and raised )?in (?P<v>[^\d].*)", "Was born in {v}", "origin", 0.7, check=place, predicate="born_in"),
        _rule(r"(?:i was) born in (?P<v>(?:19|20)\d\d)", "Was born in {v}", "age", 0.8, check=free, predicate="birth_year"),
        _rule(rf"AM (?:an? |half |part )*(?P<v>{NATIONALITIES})(?: citizen| national| guy| girl| woman| man)?", "Is {v}", "origin", 0.6, check=free, predicate="nationality"),
        _rule(r"I live (?:together )?with (?P<v>(?:my|our|an?|two|three|four|\d) .+)", "Lives with {v}", "home", 0.6, predicate="lives_with"),
        _rule(r"I live (?P<v>alone|by myself|on my own)", "Lives alone", "home", 0.6, check=free, predicate="lives_with"),
        _rule(r"AM in (?:the )?(?P<v>[\w/+:-]+(?: [\w/+:-]+)?) time ?zone", "Time zone is {v}", "home", 0.7, check=free, predicate="time_zone"),
    ]
    return out


def _work_rules() -> list[Rule]:
    return [
        _rule(r"AM (?:an? |the |also |working as an? )+…", "Is {article}{v}", "work", 0.75, check=trade, predicate="occupation"),
        _rule(r"I work(?:ed)? (?P<how>as(?= an? | the )|for|at|in(?= [A-Za-z])|with)(?: an?| the)? …", "Works {how} {article}{v}", "work", 0.75, predicate="works"),
        _rule(r"AM (?:working|employed) (?P<how>as(?= an? )|for|at|by)(?: an?| the)? …", "Works {how} {article}{v}", "work", 0.75, predicate="works"),
        _rule(r"I work (?P<v>remotely|from home|part[- ]time|full[- ]time|night shifts|nights|shifts|freelance)", "Works {v}", "work", 0.6, check=free, predicate="work_mode"),
        _rule(r"my (?:job|profession|occupation|trade) is …", "Job is {v}", "work", 0.75, check=free, predicate="occupation"),
        _rule(r"my (?:job title|title|role|position) is (?P<v>[A-Za-z].+)", "Job is {v}", "work", 0.7, check=trade, predicate="occupation"),
        _rule(r"my (?:employer|company|startup|business|firm|shop|store|restaurant|bakery|brand|team)(?:'s name)? is (?:called |named )(?P<v>.+)", "Company is called {v}", "work", 0.7, check=free, predicate="company"),
        _rule(r"my (?:employer|company's name|company name) is …", "Company is called {v}", "work", 0.7, check=free, predicate="company"),
        _rule(r"AM (?P<v>retired|unemployed|self-employed|between jobs|on parental leave|on maternity leave|on paternity leave|semi-retired)", "Is {v}", "work", 0.7, check=free, predicate="occupation"),
        _rule(r"I (?:run|own|manage|founded|co-founded|started) (?P<v>(?:an?|my own|two|three|our own) .+)", "Runs {v}", "work", 0.7, predicate="runs"),
        _rule(r"I teach …", "Teaches {v}", "work", 0.7, predicate="teaches"),
        _rule(r"(?:AM (?:studying|majoring in)|I (?:study|major in)) …", "Studies {v}", "study", 0.7, predicate="studies"),
        _rule(r"AM doing (?P<v>(?:an?|my) (?:phd|master'?s|bachelor'?s|degree|mba|doctorate)\b.*)", "Is doing {v}", "study", 0.7, predicate="studies"),
        _rule(r"I (?:go to|attend) (?P<v>.+(?:university|college|school|high|institute))", "Goes to {v}", "study", 0.6, predicate="school"),
        _rule(r"I graduated from …", "Graduated from {v}", "study", 0.5, predicate="graduated_from"),
        _rule(r"I (?:quit|left) my job at …", "No longer works at {v}", "work", 0.8, correction=True, negative=True),
        _rule(r"(?:i|we) no longer work (?P<how>at|for|as) …", "No longer works {how} {v}", "work", 0.8, correction=True, negative=True),
        _rule(r"DONT work (?P<how>at|for|as) …", "Does not work {how} {v}", "work", 0.7, negative=True),
        # Seed 001 §4.2: a business speaks of itself as "we".
        _rule(r"we (?:mainly |mostly |only |also )?(?P<verb>sell|offer|make|produce|manufacture|specialise in|specialize in|build|import|export) …", "Business {verb}s {v}", "business", 0.75, predicate="business_does"),
        _rule(r"our (?:business|company|shop|store|firm|startup|restaurant|bakery) is (?:called|named) …", "Business is called {v}", "business", 0.8, check=free, predicate="company"),
        _rule(r"(?:our|my) (?:business|company|shop|store|firm|startup|restaurant|bakery) is (?P<how>located in|based in|in) …", "Business is located in {v}", "business", 0.75, check=place, predicate="business_in"),
        _rule(r"(?:our|my) (?:business|company|shop|store|firm|startup) is (?P<v>an? .+)", "Business is {v}", "business", 0.75, check=_kind_of_business, predicate="business_is"),
        _rule(r"we(?:'re| are) (?P<v>an? (?:[\w-]+ ){0,4}(?:business|company|shop|store|firm|startup|start-up|restaurant|bakery|agency|cafe|café|hotel|charity|non-?profit|studio|clinic|school|farm|brewery|co-?op|team|band|family|couple|bank|marketplace|platform|manufacturer|retailer|consultancy)\b.*)", "Business is {v}", "business", 0.75, check=_kind_of_business, predicate="business_is"),
        _rule(r"our (?:customers|clients|users|target audience|audience|target market) (?:is|are) …", "Customers are {v}", "business", 0.7, predicate="customers"),
    ]


def _kind_of_business(value: str) -> str | None:
    found = free(value)
    if found is None or re.match(r"an? (?:mess|joke|disaster|failure|nightmare|bit|lot|little)\b", found, re.IGNORECASE):
        return None
    return found


def _family_rules() -> list[Rule]:
    number = r"(?:an?|one|two|three|four|five|six|seven|\d{1,2}|twin|no)"
    own = r"(?:(?:older|younger|little|big|small|beautiful|lovely|wonderful|grown-up|grown|adult|adopted|rescue|elderly|twin|teenage|black|white|young|old|golden|\d+-year-old) )*"
    members = r"(?:sons?|daughters?|kids?|child|children|brothers?|sisters?|siblings?|twins|grandchild(?:ren)?|grandsons?|granddaughters?|grandkids?|toddlers?|teenagers?|teens?)"
    animals = r"(?:dogs?|cats?|puppy|puppies|kittens?|horses?|rabbits?|parrots?|hamsters?|fish|pets?|chickens?|goats?|guinea pigs?|labrador|retriever|poodle|beagle|corgi|terrier|dachshund|bulldog)"
    whom = r"(?P<who>KIN)"
    out = [
        _rule(rf"my {whom}(?:'s)? name(?:'s| is) …", "{Who}'s name is {v}", "family", 0.75, check=animal_or_person_name, predicate="name", subject="{who}"),
        _rule(rf"my {whom}(?:'s| is) (?:called|named) …", "{Who}'s name is {v}", "family", 0.75, check=animal_or_person_name, predicate="name", subject="{who}"),
        _rule(r"my (?P<who>PET)(?:'s name is|'s name's| is called| is named|'s called|'s named) …", "{Who}'s name is {v}", "pet", 0.65, check=animal_or_person_name, predicate="name", subject="{who}"),
        _rule(rf"my {whom}(?:'s| is)(?: also)? allergic to …", "{Who} is allergic to {v}", "family", 0.85, check=allergen, predicate="allergic_to", subject="{who}"),
        _rule(rf"my {whom}(?:'s| is)(?: an?| also)* (?P<v>DIET)", "{Who} is {v}", "family", 0.75, check=free, predicate="diet", subject="{who}"),
        _rule(rf"my {whom}(?:'s| is) (?P<v>\d{{1,3}}|[a-z]{{3,6}})(?: years old)?", "{Who} is {v} years old", "family", 0.55, check=_age, predicate="age", subject="{who}"),
        _rule(rf"my {whom}(?:'s| is) an? …", "{Who} is {article}{v}", "family", 0.55, check=trade, predicate="occupation", subject="{who}"),
        _rule(rf"my {whom} works (?P<how>as|at|for|in) (?:an? )?…", "{Who} works {how} {article}{v}", "family", 0.55, predicate="works", subject="{who}"),
        _rule(rf"my {whom} (?:lives|is living|is based) in …", "{Who} lives in {v}", "family", 0.6, check=place, predicate="lives_in", subject="{who}"),
        _rule(rf"my {whom} (?P<verb>loves|likes|hates|dislikes|enjoys|prefers|speaks|studies|plays) …", "{Who} {verb} {v}", "family", 0.55, predicate=None, subject="{who}"),
        _rule(rf"my {whom}'s birthday is …", "{Who}'s birthday is {v}", "family", 0.75, check=free, predicate="birthday", subject="{who}"),
        _rule(rf"HAVE (?P<v>{number} {own}{members}\b.*)", "Has {v}", "family", 0.75, check=_relatives, predicate="children_or_siblings"),
        _rule(rf"HAVE (?P<v>{number} {own}(?:[\w-]+ ){{0,2}}{animals}\b.*)", "Has {v}", "pet", 0.65, check=_relatives, predicate="pets"),
        _rule(rf"(?:i|we) (?:own|adopted|recently adopted|just adopted) (?P<v>{number} {own}(?:[\w-]+ ){{0,2}}{animals}\b.*)", "Has {v}", "pet", 0.65, check=_relatives, predicate="pets"),
        _rule(rf"DONT have (?:any )?(?P<v>{members}|{animals})", "Has no {v}", "family", 0.6, check=free, negative=True),
        _rule(r"AM (?:a )?(?P<v>(?:single |proud |working |stay-at-home )*(?:mother|father|mom|mum|dad|parent) (?:of|to) .+)", "Is a {v}", "family", 0.7, check=free, predicate="parent_of"),
        _rule(r"AM (?P<v>married|single|divorced|engaged|widowed|separated)", "Is {v}", "family", 0.7, check=free, predicate="marital_status"),
        _rule(r"AM (?:happily )?(?P<how>married|engaged) to (?P<v>.+)", "Is {how} to {v}", "family", 0.7, check=name, predicate="partner"),
        _rule(r"(?:i|we) (?:just |recently )?got (?P<v>married|divorced|engaged)", "Got {v}", "family", 0.75, check=free, predicate="marital_status", correction=True),
    ]
    return out


def _age(value: str) -> str | None:
    words = "one two three four five six seven eight nine ten eleven twelve thirteen fifteen".split()
    value = value.lower()
    return value if value in words or (value.isdigit() and 0 < int(value) < 120) else None


def _relatives(value: str) -> str | None:
    value = re.sub(r"^no\b", "no", value)
    found = free(re.sub(r"\s+(?:and|that|to|at home|who|with)\s+(?:i|we|they|he|she|need|love|want|keep)\b.*", "", value))
    return None if found is None or re.search(r"\b(?:meme|joke|video|question|problem|in mind|sitter|food|person|lover)\b", found) else found


def _health_rules() -> list[Rule]:
    return [
        _rule(r"AM (?:(?:an?|becoming|turning|going) )?(?P<v>DIET)", "Is {v}", "diet", 0.9, check=_diet, predicate="diet"),
        _rule(r"(?:i've|i have) (?:been|become|gone|turned) (?:an? )?(?P<v>DIET)\b.*", "Is {v}", "diet", 0.9, check=_diet, predicate="diet"),
        _rule(r"(?:i|we) (?:recently |just )?(?:became|went|turned) (?:an? )?(?P<v>DIET)\b.*", "Is {v}", "diet", 0.9, check=_diet, predicate="diet", correction=True),
        _rule(r"AM not (?:an? )?(?P<v>DIET)", "Is not {v}", "diet", 0.85, check=_diet, negative=True),
        _rule(r"AM (?:not (?:an? )?(?P<v>DIET) (?:any ?more|any longer)|no longer (?:an? )?(?P<w>DIET))", "Is no longer {v}", "diet", 0.9, check=_diet, negative=True, correction=True),
        _rule(r"AM (?:on|following|doing) (?:an? |the )?(?P<v>(?:[\w-]+ ){1,3}diet)", "Is on {article}{v}", "diet", 0.8, predicate="diet"),
        _rule(r"I follow (?:an? |the )?(?P<v>(?:[\w-]+ ){1,3}diet)", "Is on {article}{v}", "diet", 0.8, predicate="diet"),
        _rule(r"I (?:only eat|eat only) …", "Only eats {v}", "diet", 0.85, check=food, predicate="diet"),
        _rule(r"(?:DONT |i (?:never|can't|cannot|can not) )(?P<verb>eat|drink|consume|smoke)(?: any)?(?: …)?", "Does not {verb}{ v}", "diet", 0.85, check=food, negative=True, predicate="avoids"),
        _rule(r"(?:i|we) no longer (?P<verb>eat|drink|smoke)(?: …)?", "No longer {verb}s{ v}", "diet", 0.85, check=food, negative=True, correction=True, predicate="avoids"),
        _rule(r"(?:i|we)(?:'ve| have)? (?:stopped|quit|given up|gave up) (?P<verb>eating|drinking|smoking)(?: …)?", "Stopped {verb}{ v}", "diet", 0.85, check=food, negative=True, correction=True, predicate="avoids"),
        _rule(r"AM (?:also )?(?:allergic|intolerant) to …", "Is allergic to {v}", "health", 0.95, check=allergen, predicate="allergic_to"),
        _rule(r"AM not (?:allergic|intolerant) to …", "Is not allergic to {v}", "health", 0.8, check=allergen, negative=True),
        _rule(r"HAVE (?:an? )?(?:[\w]+ )?(?P<v>[\w-]+(?: [\w-]+)?) allerg(?:y|ies)", "Is allergic to {v}", "health", 0.95, check=_allergy, predicate="allergic_to"),
        _rule(r"HAVE (?:an? )?(?:[\w]+ )?(?:allergy|intolerance) to …", "Is allergic to {v}", "health", 0.95, check=allergen, predicate="allergic_to"),
        _rule(r"(?:HAVE |i suffer from |i was (?:recently )?diagnosed with |i live with |i struggle with )(?:mild |severe |chronic |bad )?(?P<v>ILLNESS)", "Has {v}", "health", 0.85, check=free, predicate="condition"),
        _rule(r"AM (?P<v>left-handed|right-handed|colou?r[- ]?blind|deaf|blind|dyslexic|autistic|hard of hearing|visually impaired|pregnant|asthmatic|epileptic|neurodivergent|ambidextrous)\b.*", "Is {v}", "health", 0.75, check=free, predicate="condition"),
        _rule(r"I use a (?P<v>wheelchair|hearing aid|screen reader|walking stick|cpap machine)", "Uses a {v}", "health", 0.8, check=free, predicate="condition"),
        _rule(r"AM (?P<v>\d{1,3}|[a-z]+(?:-[a-z]+)?) ?(?:years old|years of age|yo|y/o|yrs old)", "Is {v} years old", "age", 0.7, check=_years, predicate="age"),
        _rule(r"AM (?P<v>\d\d)", "Is {v} years old", "age", 0.65, check=_years, predicate="age", confidence=0.7),
        _rule(r"my age is (?P<v>\d{1,3})", "Is {v} years old", "age", 0.7, check=_years, predicate="age"),
        _rule(r"my birthday(?:'s| is)(?: on| always on)?(?: the)? …", "Birthday is {v}", "birthday", 0.85, check=free, predicate="birthday"),
        _rule(r"i was born on(?: the)? …", "Birthday is {v}", "birthday", 0.85, check=free, predicate="birthday"),
        _rule(r"(?:my|our) (?:wedding )?anniversary is(?: on)?(?: the)? …", "Anniversary is {v}", "birthday", 0.7, check=free, predicate="anniversary"),
    ]


def _diet(value: str) -> str | None:
    value = re.sub(r"^a ", "", value.strip(), flags=re.IGNORECASE).lower()
    return {"celiac": "celiac", "coeliac": "coeliac"}.get(value, value)


def _allergy(value: str) -> str | None:
    value = re.sub(r"^(?:severe|mild|bad|serious|strong|deadly|life-threatening|slight|an?|no|any|lots of|many|some|food|seasonal)\b ?", "", value.strip(), flags=re.IGNORECASE)
    return allergen(value) if value and value.lower() not in ("to", "no", "any", "bad", "food", "seasonal") else None


def _years(value: str) -> str | None:
    if value.isdigit():
        return value if 5 <= int(value) <= 120 else None
    return value if re.fullmatch(r"(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:-\w+)?|eighteen|nineteen|seventeen|sixteen", value.lower()) else None


def _taste_rules() -> list[Rule]:
    out = []
    verbs = {
        r"(?:prefer)": "Prefers", r"(?:like)": "Likes", r"(?:love|adore)": "Loves", r"(?:enjoy|appreciate)": "Enjoys",
        r"(?:hate|detest|despise|loathe|can't stand|cannot stand|can't bear|can't tolerate)": "Hates", r"(?:dislike)": "Dislikes",
    }
    for verb, content in verbs.items():
        negative = content in ("Hates", "Dislikes")
        out.append(
            _rule(rf"I {verb} …", content + " {v}", "taste", 0.65, kind="preference", predicate=content.lower(), confidence=0.85, negative=negative)
        )
    out += [
        _rule(r"AM (?:an? )?(?:(?:big|huge|great|massive|real|avid) )?(?:fan|lover) of …", "Likes {v}", "taste", 0.65, kind="preference", predicate="likes"),
        _rule(r"AM (?:into|fond of|keen on|passionate about|obsessed with|crazy about|interested in|a sucker for) …", "Likes {v}", "taste", 0.65, kind="preference", predicate="likes"),
        _rule(r"AM not (?:(?:an? )?(?:(?:big|huge|great|real) )?fan of|into|fond of|keen on|interested in) …", "Does not like {v}", "taste", 0.65, kind="preference", predicate="dislikes", negative=True),
        _rule(r"DONT (?:like|enjoy|care for|love) …", "Does not like {v}", "taste", 0.65, kind="preference", predicate="dislikes", negative=True),
        _rule(r"(?:i|we) no longer (?:like|enjoy|love) …", "No longer likes {v}", "taste", 0.65, kind="preference", predicate="dislikes", negative=True, correction=True),
        _rule(r"my (?:all[- ]time |absolute |personal )?favou?rite (?P<what>[\w -]{2,40}?) (?:is|are|has always been) …", "Favourite {what} is {v}", "taste", 0.7, kind="preference", check=free, predicate="favourite {what}"),
        _rule(r"(?P<v>[\w' -]{2,40}) (?:is|are) my (?:all[- ]time |absolute )?favou?rite (?P<what>[\w -]{2,40})", "Favourite {what} is {v}", "taste", 0.7, kind="preference", check=thing, predicate="favourite {what}"),
        _rule(r"AM (?:an? |more of an? |very much an? |totally an? )+(?P<v>(?:[\w-]+ )?person|night owl|early bird|early riser|bookworm|homebody|introvert|extrovert|foodie|gamer|runner|cyclist|hiker|movie buff|film buff|history buff|light sleeper)", "Is a {v}", "taste", 0.55, kind="preference", check=_sort, predicate="is_a"),
        _rule(r"(?:DONT |i )(?P<how>want|need|like|expect|prefer) (?:to (?:get|see|receive|have) |any |my |your |the )*(?P<v>(?:[\w-]+ ){0,4}STYLE\b.*)", "{Wants} {v}", "style", 0.8, kind="preference", check=_style, predicate="style"),
        _rule(r"(?:i(?:'d| would) (?:like|prefer|rather have)) (?:to (?:get|see|receive|have) |my |your |the )*(?P<v>(?:[\w-]+ ){1,4}STYLE\b.*)", "Prefers {v}", "style", 0.75, kind="preference", check=_style, predicate="style"),
        _rule(r"I use …", "Uses {v}", "tools", 0.6, predicate="uses", confidence=0.8),
        _rule(r"I (?:drive|ride) …", "Drives {v}", "possession", 0.55, check=_vehicle, predicate="drives"),
        _rule(r"I (?:play|practi[sc]e) …", "Plays {v}", "hobby", 0.55, check=_pastime, predicate="plays"),
        _rule(r"I speak …", "Speaks {v}", "language", 0.7, check=languages, predicate="speaks"),
        _rule(r"AM (?:a )?(?:fluent in|native speaker of|bilingual in) …", "Speaks {v}", "language", 0.7, check=languages, predicate="speaks"),
        _rule(rf"AM (?:an? )?(?:native )?(?P<v>{LANGUAGES})[- ](?:native )?speaker", "Speaks {v}", "language", 0.7, check=languages, predicate="speaks"),
        _rule(r"my (?:native|first|mother) (?:language|tongue) is …", "Native language is {v}", "language", 0.75, check=languages, predicate="native_language"),
        _rule(r"DONT speak …", "Does not speak {v}", "language", 0.65, check=languages, negative=True),
        _rule(r"AM (?P<verb>learning|trying to learn|practising|practicing|training for|saving for|saving up for|preparing for|writing|building|trying to (?:lose|quit|learn|save|get|build|run|eat|stop|cut|reduce|improve|sleep|read)) …", "Is {verb} {v}", "goal", 0.6, confidence=0.8),
        _rule(r"AM working on (?P<v>(?:an?|my|our) .+)", "Is working on {v}", "goal", 0.5, confidence=0.7),
        _rule(r"my (?:main |biggest |long-term |current |ultimate )?(?P<what>goal|dream|ambition|aim|resolution)(?: for [\w ]{1,20}| this year)? is (?:to )?…", "{What} is to {v}", "goal", 0.65, check=_goal),
        _rule(r"my (?P<what>hobby|hobbies|interests) (?:is|are|include|includes) …", "Hobbies are {v}", "hobby", 0.6, kind="preference", predicate="hobbies"),
        _rule(r"I (?P<how>usually|normally|typically|generally) (?P<v>(?!use\b|like\b|prefer\b|eat\b|have to\b|just\b|get\b|want\b|need\b|think\b)[a-z]+ .+)", "{How} {verb_v}", "habit", 0.5, check=_habit, confidence=0.75),
        _rule(r"I (?P<v>(?:run|swim|cycle|jog|meditate|exercise|work out|hike|climb|row|do yoga|go to the gym|go running|go swimming|wake up|get up|go to bed|walk (?:the|my) dog|volunteer|train)\b.* (?:every|each|once a|twice a|on weekends|on (?:mon|tues|wednes|thurs|fri|satur|sun)days?|in the mornings?|at \d|at (?:five|six|seven|eight|nine|ten)|(?:two|three|four|five) times a)\b.*)", "{verb_v}", "habit", 0.55, check=_habit),
        _rule(r"my (?P<what>time ?zone|e-?mail(?: address)?|phone(?: number)?|(?:home |postal )?address|shoe size|clothing size|t-shirt size|dress size|height|weight|blood type|home ?town|university|school|major|degree|gym|doctor|car|bike|laptop|computer|operating system|os|ide|editor|text editor|shell|phone|camera|github(?: handle| username)?|twitter handle|username|website|blog|currency|zodiac sign|star sign|instrument|commute|budget|preferred language|programming language|favou?rite) is (?:on |at |an? |the )*…", "{What} is {v}", "about", 0.65, check=free, predicate="{what}"),
    ]
    return out


def _sort(value: str) -> str | None:
    low = value.lower()
    bad = ("busy", "nice", "good", "bad", "different", "new", "terrible", "normal", "real", "simple", "person", "the", "only", "first", "last", "same", "third", "horrible", "changed")
    return None if low.split()[0] in bad else low


_ONE_OFF = re.compile(r"\b(?:this|that|these|those|here|now|today|first|second|last|latest|previous|above|your|more|another|other|few|couple|some)\b", re.IGNORECASE)


def _style(value: str) -> str | None:
    found = free(value)
    return None if found is None or _ONE_OFF.search(found) or found.lower().startswith(("an ", "a ")) or len(found.split()) < 2 else found


def _vehicle(value: str) -> str | None:
    found = trim_article(value)
    return found if found and re.search(r"\b(?:car|bike|motorbike|motorcycle|truck|van|suv|scooter|bicycle|bus|tesla|toyota|honda|ford|bmw|audi|volkswagen|vw|volvo|mazda|nissan|kia|hyundai|renault|peugeot|fiat|seat|skoda|subaru|mercedes|jeep|chevrolet|chevy|prius|vespa|harley|mini|porsche|lexus|tractor|train)\b", found, re.IGNORECASE) else None


def trim_article(value: str) -> str | None:
    """A thing, with its article."""
    return free(value) if value.lower().startswith(("a ", "an ")) else thing(value)


_PASTIMES = re.compile(r"\b(?:the (?:\w+ )?(?:piano|guitar|violin|drums|cello|flute|saxophone|trumpet|bass|harp|clarinet|ukulele|keyboard|banjo|oboe|accordion)|piano|guitar|violin|drums|chess|tennis|football|soccer|basketball|volleyball|golf|hockey|rugby|cricket|badminton|squash|padel|handball|baseball|softball|bridge|poker|video ?games|board ?games|yoga|judo|karate|aikido|taekwondo|jiu-?jitsu|boxing|dnd|d&d|dungeons|minecraft|table tennis|ping ?pong|go)\b", re.IGNORECASE)


def _pastime(value: str) -> str | None:
    found = thing(value) if not value.lower().startswith("the ") else free(value.removeprefix("the ")) and value
    return found if found and _PASTIMES.search(found) and len(found.split()) <= 10 else None


def _goal(value: str) -> str | None:
    found = free(re.sub(r"^to ", "", value, flags=re.IGNORECASE))
    return found if found and len(found.split()) > 1 else None


def _habit(value: str) -> str | None:
    found = free(value)
    return found if found and len(found.split()) > 1 and not re.search(r"\b(?:you|your)\b", found) else None


def all_rules() -> list[Rule]:
    """In the order in which they are tried; the first that matches a clause speaks for it."""
    return [
        *_name_rules(), *_health_rules(), *_family_rules(), *_home_rules(), *_work_rules(), *_taste_rules(),
    ]
