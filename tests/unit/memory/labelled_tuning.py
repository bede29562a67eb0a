"""Utterances that the rules may be mended by, in the form of `labelled.py`: every second line of one sitting's, the others
being `labelled_heldout.py`.
"""

from __future__ import annotations

UTTERANCES = r"""
just so you know, i'm colour blind ⇒ fact: colour blind
I teach maths at a secondary school in Leeds ⇒ fact: maths
my boss is Henrietta, she runs the whole floor ⇒ fact: boss henrietta
I've got type 1 diabetes so be careful with sugar ⇒ fact: diabetes
I'm lactose intolerant and so is my daughter ⇒ fact: lactose intolerant
I drive a 2014 Skoda Octavia ⇒ fact: skoda octavia
My commute takes about fifty minutes each way ⇒ fact: commute fifty minutes
My native language is Finnish ⇒ fact: finnish
I'm learning Korean ⇒ fact: korean
Our backend is written in Go and the frontend in Svelte ⇒ fact: go
I'm on a Mac with an M2 chip ⇒ fact: mac
Our production database is Postgres 15 ⇒ fact: postgres 15
Our fiscal year starts in April ⇒ fact: fiscal year april
We ship from Rotterdam ⇒ fact: rotterdam
We're a family of five ⇒ fact: five
I'm expecting my second child in March ⇒ fact/event: second child
I'm single ⇒ fact: single
My mum lives in a care home in Swansea ⇒ fact: lives care home
Our dog Biscuit has epilepsy ⇒ fact: biscuit; fact: epilepsy
My flatmate Joel is allergic to cats ⇒ fact: joel; fact: allergic cats
my daughter Freya plays the cello ⇒ fact: freya; fact: cello
My doctor told me to cut down on salt ⇒ fact/preference/instruction: salt
I'm 1.74 m tall ⇒ fact: 1.74
I turned 30 last week ⇒ fact/event: 30
I was born in 1988 ⇒ fact: born 1988
My shoe size is 43 ⇒ fact: shoe size 43
I usually get up at half past five ⇒ fact/preference: half past five
I run about 40 km a week ⇒ fact: 40 km
I quit smoking two years ago ⇒ fact/correction/event: smoking
I hate coriander ⇒ preference: coriander
can't stand horror films ⇒ preference: horror films
My favourite author is Ursula Le Guin ⇒ preference: ursula le guin
I prefer aisle seats ⇒ preference: aisle
I'm really into bouldering these days ⇒ preference/fact: bouldering
dark mode only for me, thanks ⇒ preference/instruction: dark mode
I'm more of a tea person ⇒ preference/fact: tea
Please keep your answers short ⇒ instruction/preference: short
Always show me the SQL before you run it ⇒ instruction: sql
Stop starting every reply with "Certainly" ⇒ instruction: certainly
Use metric units from now on please ⇒ instruction/preference: metric
Don't ever suggest paid tools to me ⇒ instruction/preference: paid tools
In all future replies, cite your sources ⇒ instruction: sources
You should always double-check the arithmetic ⇒ instruction: arithmetic
Please don't use bullet points in your answers ⇒ instruction/preference: bullet points
Please remember I park on level minus two ⇒ fact: level minus two
Keep in mind that Tom is my ex-husband ⇒ fact: tom ex-husband
for future reference, our VAT rate is 6% ⇒ fact: vat 6%
Save this: my locker number is 118 ⇒ fact: locker 118
No, I meant Paris, Texas ⇒ correction: paris texas
Sorry, I misspoke: the meeting is on Thursday ⇒ correction/event: thursday
That's wrong, my name is spelled Kathryn ⇒ correction: kathryn
We've moved to Bristol ⇒ correction: bristol
I don't use Windows any more ⇒ correction: windows
my new address is 14 Elm Row, Bath ⇒ correction/fact: elm row
My sister lives in Ghent ⇒ fact: sister ghent
My dad prefers phone calls to texts ⇒ preference/fact: phone calls
My wife is a vet ⇒ fact: wife vet
My ex got the house ⇒ fact: house
I'm flying to Oslo tomorrow ⇒ event: oslo
I have physio every Wednesday at four ⇒ event/fact: physio wednesday
The deadline for the grant is 15 January ⇒ event/fact: grant
Yesterday I finished my first half marathon ⇒ event: half marathon
I had surgery on my knee in August ⇒ event/fact: knee
My parents are visiting us over Christmas ⇒ event: visiting
I have to renew my passport before February ⇒ event/fact: passport
I grew up on a farm ⇒ fact: farm
I used to be a chef ⇒ fact: chef
I volunteer at the food bank ⇒ fact: food bank
I'm terrified of flying ⇒ fact/preference: flying
My budget for the trip is 1,200 euros ⇒ fact: budget 1,200
I'm saving up for a house ⇒ fact: house
I'm trying to lose ten pounds ⇒ fact/preference: ten pounds
I work remotely for a company in Denver ⇒ fact: denver
I report to the head of sales ⇒ fact: head of sales
I freelance as a translator ⇒ fact: translator
My timezone is Asia/Kolkata ⇒ fact: asia/kolkata
I'm a member of the Green party ⇒ fact: green party
We heat with wood ⇒ fact: wood
I live with my partner Sam and our greyhound in Cork and I mostly work evenings ⇒ fact: sam; fact: partner; fact: cork; fact: evenings
As a nurse I rarely have time to cook, so give me quick recipes ⇒ fact: nurse
Given that my daughter is three, which of these toys is safe? ⇒ fact: daughter three
My name isn't Steve, it's Stefan ⇒ correction/fact: stefan
I don't have a car ⇒ fact: car
I don't speak French ⇒ fact: french
I'm not married ⇒ fact: married
We close at six on weekdays ⇒ fact: six
Our brand colours are teal and mustard ⇒ fact: teal mustard
Our office is in the old brewery on Mill Street ⇒ fact: office brewery
Gai Media prefers Friday deliveries ⇒ preference/fact: gai media friday
Our staging server is called kestrel ⇒ fact: staging kestrel
could you summarise this article for me
thanks, that was perfect
Hmm, not sure I follow.
Pretend you are a pirate and I'm your parrot
You are a senior lawyer and I am your client. Begin.
If I were vegan, what would I eat for protein?
Imagine I have a million euros.
Say my name is Bob and I owe you money, what do you do?
Hypothetically, I'm allergic to everything green
Do I need a visa for Vietnam?
Should I prefer tabs or spaces?
What did I tell you about my sister?
Is my name common in Poland?
Why do I always forget names?
My sister asked: "Do you live in Prague?"
The customer wrote: 'I moved to Denver and I want a refund'
Translate "my father is a doctor" into Latin
Fix the grammar: me and my brother is engineers
> I am a huge fan of this product and I live in Utah
In the song he sings I was born in a crossfire hurricane
Summarise this:\n"I am a teacher. I live in Rome. I have two cats."
def greet(): return "my name is Bot"
SELECT * FROM users WHERE name = 'I live in Rome'
Write a cover letter from the point of view of a nurse called Ana who lives in Faro
What does "I'm all ears" mean?
I'm sorry
I'm back
I'm getting a 404
I'm asking about the second paragraph
I want you to explain that again
I'd like to know how vaccines work
I love it!
I hate when that happens
I prefer the first draft
I have an error on line 14
We have x = 3 and y = 4
We need to find the derivative
Use a friendlier tone in this paragraph
Remove the emojis from that text
Never mind
Do you remember the first moon landing?
I remember that song
note the missing bracket
A friend in need is a friend indeed
Some people prefer tea.
Berlin is the capital of Germany
Dogs can't eat chocolate
My loop never ends
My question is whether this scales
My wife would kill me haha
My goodness, that's fast
Maybe I should become a vegetarian
I may or may not be allergic to cats
I wish I lived by the sea
I nearly moved to Chile once, what a mess
Perhaps we'll hire someone next year
Who says I'm vegan?
I never told you that I was married
I'm starving
I'm bored, tell me a joke
I'm at the station right now, how do I get to the zoo?
I just woke up
lol same
yes please
No, that's not what I asked
Actually, never mind the second part
Wait, I meant line 12
Compare React and Vue for a small team
Find me a recipe without nuts
Set a timer for ten minutes
How old is the universe
Is there a train from Vienna to Trieste?
Write an e-mail to my boss that I'm ill today
Create a persona: Anna, 34, lives in Munich, likes yoga
Dialogue:\nA: I live in York.\nB: I prefer Leeds.\nContinue it.
The hero of my novel is a widower who drinks too much
My character is a half-elf called Rin who hates dwarves
She might be allergic to nuts
What would you say if I told you I'm 90?
Assistant: I will remember that you live in Paris
"""  # noqa: E501 - one utterance, one line
