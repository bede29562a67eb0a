"""A text that a message brings along and words that were cut short teach and end nothing; own words beside them do."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from app.memory.candidate import SourceExchange
from app.memory.changes import find_changes
from app.memory.extract import extract
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def read_contents(message: str) -> list[str]:
    return [candidate.content for candidate in extract(SourceExchange(message, NOW))]


@each_of(
    "message",
    [
        "Is this sentence right? I no longer live in Leeds.",
        "Correct my grammar: I am a vegan since two years",
        "How do I say 'I moved to Rome' in Italian?",
        "What does 'I'm allergic to nuts' mean in French?",
        "which one is better english: I work at Siemens since 2019 or I have worked at Siemens since 2019",
        "I sold my Golf yesterday. Translate that to Spanish please.",
        "Rephrase so it sounds more formal - I have two kids and live in Boston",
        'Does "I don\'t drink coffee anymore" need a comma?',
        "Can you proofread the following?\n\nI am a nurse from Manila and I speak three languages.",
        "How would a native speaker say I quit my job at the bank and moved to Porto?",
        "grammar check\nMy brother lives in Toronto and he have two dog",
        "Make this sound more natural: My wife is called Dana and she is a dentist",
        "Ist dieser Satz richtig? Ich wohne nicht mehr in Leipzig.",
        "Korrigiere meine Grammatik: Ich bin Veganer seit zwei Jahre",
        'Wie sagt man "Ich bin nach Rom gezogen" auf Italienisch?',
        'Was heißt "Ich bin gegen Nüsse allergisch" auf Englisch?',
        "Ich habe meinen Golf verkauft. Übersetz das bitte ins Spanische.",
        "Formuliere höflicher: Ich habe zwei Kinder und wohne in Bonn",
        "Welche Variante klingt besser: Ich arbeite bei Siemens seit 2019 oder Ich arbeite seit 2019 bei Siemens?",
        "Kannst du das Korrektur lesen?\n\nIch bin Krankenpfleger aus Manila und spreche drei Sprachen.",
        'Fehlt in "Ich trinke keinen Kaffee mehr" ein Komma?',
        "Cette phrase est-elle correcte ? Je n'habite plus à Lille.",
        "Corrige ma grammaire : Je suis végan depuis deux an",
        "Comment dit-on « J'ai déménagé à Rome » en italien ?",
        'Que veut dire "Je suis allergique aux noix" en anglais ?',
        "J'ai vendu ma Golf hier. Traduis ça en espagnol stp.",
        "Reformule de façon plus formelle : j'ai deux enfants et j'habite à Lyon",
        "Peux-tu relire ce texte ?\n\nJe suis infirmière, je viens de Manille et je parle trois langues.",
        "Laquelle est mieux : je travaille chez Siemens depuis 2019 ou je travaille à Siemens depuis 2019 ?",
        'Faut-il une virgule dans "Je ne bois plus de café" ?',
        "¿Está bien esta frase? Ya no vivo en Sevilla.",
        "Corrige mi gramática: Soy vegano desde hace dos año",
        '¿Cómo se dice "Me mudé a Roma" en italiano?',
        '¿Qué significa "Soy alérgico a las nueces" en inglés?',
        "Vendí mi Golf ayer. Tradúcelo al francés, por favor.",
        "Reescribe esto más formal: tengo dos hijos y vivo en Granada",
        "¿Puedes revisar este texto?\n\nSoy enfermera, soy de Manila y hablo tres idiomas.",
        "¿Cuál suena mejor: trabajo en Siemens desde 2019 o llevo en Siemens desde 2019?",
        '¿Lleva coma "Ya no bebo café"?',
        "Esta frase está certa? Eu não moro mais em Recife.",
        "Corrija minha gramática: Eu sou vegano a dois ano",
        'Como se diz "Eu me mudei para Roma" em italiano?',
        'O que significa "Sou alérgico a nozes" em inglês?',
        "Vendi meu Golf ontem. Traduz isso para espanhol, por favor.",
        "Reescreva de forma mais formal: tenho dois filhos e moro em Curitiba",
        "Pode revisar este texto?\n\nSou enfermeira, venho de Manila e falo três línguas.",
        "Qual é melhor: trabalho na Siemens desde 2019 ou estou na Siemens desde 2019?",
        'Precisa de vírgula em "Eu não bebo mais café"?',
        "这句话对吗？我不再住在成都了。",
        "帮我改语法：我是素食者从两年前",
        "“我搬到罗马了”用意大利语怎么说？",
        "“我对坚果过敏”英语是什么意思？",
        "我昨天把高尔夫卖了。请把这句翻译成西班牙语。",
        "换个更正式的说法：我有两个孩子，住在杭州",
        "帮我润色一下这段话：\n\n我是护士，来自马尼拉，会说三种语言。",
        "哪个说法更好：我在西门子工作了五年，还是我工作在西门子五年？",
    ],
)
def test_a_text_to_check_translate_or_explain_says_nothing_of_the_user(message: str) -> None:
    assert read_contents(message) == []
    assert find_changes(message) == []


@each_of(
    "message",
    [
        "My friend wrote me: I quit my job at Monzo and moved to Rome",
        "She said: I hate fish",
        "From: Carla Neves <carla@neves.pt>\nTo: me\nSubject: Summer\n\nHi,\n\nI live in Faro now and I work as a vet. I'm allergic to cats, can you believe it?\n\nBest,\nCarla",  # noqa: E501
        "Tom: I moved to Boston last week\nJill: wow, I still live in Austin\nTom: my wife is a nurse there",
        "[10:32] Sam: i'm vegan now\n[10:33] Lou: i have two kids and no time for that",
        "About the role: We are a team of 12 engineers. Our stack is Python and Kafka. We work from Dublin. You will own our billing system.",  # noqa: E501
        "★★★★☆ I have a German shepherd and this bed is too small. I live in Ohio and shipping was slow. Would buy again.",
        "My sister just texted: I'm pregnant and we're moving to Oslo",
        "Dear Anna,\nI am no longer a vegetarian and I live in Graz with my two sons.\nYours, Peter\n\nHow should I answer?",
        'my coworker keeps telling me "I work nights and I have three dogs" what do I answer',
        "The customer says I'm allergic to latex and I want a refund. Reply politely.",
        "As my grandmother used to say, I am from Naples and I never cook with butter.",
        "Mein Freund hat mir geschrieben: Ich habe bei Bosch gekündigt und bin nach Rom gezogen",
        "Sie sagte: Ich hasse Fisch",
        "Von: Carla Neves\nAn: mich\nBetreff: Sommer\n\nHallo,\n\nich wohne jetzt in Faro und arbeite als Tierärztin.\n\nLiebe Grüße\nCarla",  # noqa: E501
        "Tom: Ich bin nach Bonn gezogen\nJill: Ich wohne noch in Ulm\nTom: Meine Frau ist Krankenschwester",
        "Meine Schwester schrieb gerade: Ich bin schwanger und wir ziehen nach Oslo",
        "Liebe Anna,\nich bin kein Vegetarier mehr und wohne mit meinen zwei Söhnen in Graz.\nDein Peter\n\nWas soll ich antworten?",  # noqa: E501
        "Wir suchen Verstärkung: Wir sind ein Team von 12 Entwicklern. Unser Büro ist in Köln. Wir arbeiten mit Kotlin.",
        "4 von 5 Sternen. Ich habe einen Schäferhund und wohne in Kassel. Das Bett ist zu klein.",
        "Mon ami m'a écrit : J'ai quitté Renault et j'ai déménagé à Rome",
        "Elle a dit : Je déteste le poisson",
        "De : Carla Neves\nÀ : moi\nObjet : Été\n\nSalut,\n\nj'habite à Faro maintenant et je suis vétérinaire.\n\nBises,\nCarla",  # noqa: E501
        "Tom : J'ai déménagé à Nantes\nJulie : J'habite toujours à Metz\nTom : Ma femme est infirmière",
        "Ma sœur vient de m'envoyer : Je suis enceinte et on déménage à Oslo",
        "Chère Anna,\nje ne suis plus végétarien et j'habite à Graz avec mes deux fils.\nTon Pierre\n\nQue dois-je répondre ?",
        "Le client écrit : je suis allergique au latex et je veux un remboursement. Réponds poliment.",
        "Nous recrutons : Nous sommes une équipe de 12 développeurs. Notre bureau est à Lyon. Nous travaillons en Kotlin.",
        "Mi amigo me escribió: Dejé Seat y me mudé a Roma",
        "Ella dijo: Odio el pescado",
        "De: Carla Neves\nPara: mí\nAsunto: Verano\n\nHola:\n\nvivo en Faro ahora y soy veterinaria.\n\nUn abrazo,\nCarla",
        "Tomás: Me mudé a Bilbao\nJulia: Yo sigo viviendo en Vigo\nTomás: Mi mujer es enfermera",
        "Mi hermana me acaba de mandar: Estoy embarazada y nos mudamos a Oslo",
        "Querida Ana:\nya no soy vegetariano y vivo en Graz con mis dos hijos.\nTuyo, Pedro\n\n¿Qué le contesto?",
        "El cliente dice: soy alérgico al látex y quiero un reembolso. Responde con educación.",
        "Buscamos gente: Somos un equipo de 12 desarrolladores. Nuestra oficina está en Málaga. Trabajamos con Kotlin.",
        "Meu amigo me escreveu: Saí da Petrobras e me mudei para Roma",
        "Ela disse: Eu odeio peixe",
        "De: Carla Neves\nPara: mim\nAssunto: Verão\n\nOi,\n\nmoro em Faro agora e sou veterinária.\n\nBeijos,\nCarla",
        "Tomás: Me mudei para Natal\nJúlia: Eu ainda moro em Belém\nTomás: Minha mulher é enfermeira",
        "Minha irmã acabou de mandar: Estou grávida e vamos nos mudar para Oslo",
        "Querida Ana,\nnão sou mais vegetariano e moro em Graz com meus dois filhos.\nSeu Pedro\n\nO que eu respondo?",
        "O cliente diz: sou alérgico a látex e quero reembolso. Responda com educação.",
        "Estamos contratando: Somos uma equipe de 12 desenvolvedores. Nosso escritório fica em Natal. Trabalhamos com Kotlin.",
        "我朋友给我写信说：我从华为辞职了，搬到了罗马",
        "她说：我讨厌吃鱼",
        "发件人：李娜\n收件人：我\n主题：夏天\n\n你好，\n\n我现在住在厦门，是兽医。\n\n祝好\n李娜",
        "小王：我搬到苏州了\n小李：我还住在天津\n小王：我老婆是护士",
        "我姐姐刚发消息：我怀孕了，我们要搬到奥斯陆",
        "亲爱的安娜：\n我不再吃素了，和两个儿子住在格拉茨。\n你的彼得\n\n我该怎么回？",
        "客户说：我对乳胶过敏，我要退款。请礼貌回复。",
        "招聘：我们是一个十二人的团队，我们的办公室在上海，我们用Kotlin。",
    ],
)
def test_what_somebody_else_says_or_writes_says_nothing_of_the_user(message: str) -> None:
    assert read_contents(message) == []
    assert find_changes(message) == []


@each_of(
    "message, pattern",
    [
        ("Please check my grammar from now on, I'm dyslexic.", "dyslexic"),
        ("I live in Leeds now. Is that far from York?", "Leeds"),
        ("How do I say goodbye in Italian? I'm moving to Rome in May.", "Rome"),
        ("Is this right for me? I'm a vegan and I have a peanut allergy.", "vegan"),
        ("I'm a translator and I live in Ghent.", "Ghent"),
        ("My teacher corrects my grammar all the time because I'm from Brazil.", "Brazil"),
        ("I work at Siemens. Which one is better for my commute, bus or bike?", "Siemens"),
        ("I have two kids. Make the plan sound fun for them.", "kids"),
        ("Ich bin Übersetzerin und wohne in Gent.", "Gent"),
        ("Wie sagt man Tschüss auf Italienisch? Ich ziehe im Mai nach Rom.", "Rom"),
        ("Je suis traductrice et j'habite à Gand.", "Gand"),
        ("Soy traductora y vivo en Gante.", "Gante"),
        ("Sou tradutora e moro em Gante.", "Gante"),
        ("我是翻译，住在根特。", "根特"),
        ("My friend wrote me a long mail. I live in Rome now and he wants to visit.", "Rome"),
        ("My doctor said I'm allergic to latex.", "latex"),
        ("Hi,\nI'm a vet in Faro and I'm allergic to cats. What jobs are there?\nThanks,\nCarla", "allergic|vet"),
        ("She said yes! We're getting married in June.", "married|June"),
        ("As my wife says, I work too much. Anyway, I'm a paramedic.", "paramedic"),
        ("Me: I'm a carpenter and I live in Kent", "Kent|carpenter"),
        ("Hallo,\nich wohne in Faro und bin Tierärztin. Welche Stellen gibt es?\nDanke, Carla", "Faro|Tier"),
        ("Bonjour,\nj'habite à Faro et je suis vétérinaire. Quels postes y a-t-il ?\nMerci, Carla", "Faro|vét"),
        ("Hola:\nvivo en Faro y soy veterinaria. ¿Qué trabajos hay?\nGracias, Carla", "Faro|veter"),
        ("Oi,\nmoro em Faro e sou veterinária. Que vagas existem?\nObrigada, Carla", "Faro|veter"),
        ("你好，\n我住在厦门，是兽医。有什么工作？\n谢谢", "厦门|兽医"),
    ],
)
def test_own_words_that_only_look_like_it_are_learned(message: str, pattern: str) -> None:
    assert [content for content in read_contents(message) if re.search(pattern, content)]


@each_of(
    "message",
    [
        "Is 70kg and",
        "Does not have access to the",
        "Has $0",
        "I'm 70kg and",
        "I don't have access to the",
        "I have $0",
        "My name is the",
        "I live in the",
        "I work at a",
        "I like it",
        "I have some",
        "I'm a",
        "I need to be able to",
        "I have been with my",
        "Ich bin 70kg und",
        "Ich habe keinen Zugriff auf die",
        "Ich habe 0 €",
        "Ich wohne in der",
        "Ich arbeite bei einem",
        "Ich mag es",
        "Ich habe welche",
        "Mein Name ist der",
        "Je suis 70kg et",
        "Je n'ai pas accès à la",
        "J'ai 0 €",
        "J'habite dans le",
        "Je travaille chez un",
        "J'aime ça",
        "J'en ai",
        "Mon nom est le",
        "Soy de 70kg y",
        "No tengo acceso a la",
        "Tengo 0 €",
        "Vivo en la",
        "Trabajo en un",
        "Me gusta eso",
        "Tengo algunos",
        "Mi nombre es el",
        "Não tenho acesso à",
        "Tenho R$0",
        "Moro na",
        "Trabalho em um",
        "Gosto disso",
        "Tenho alguns",
        "Meu nome é o",
        "我没有权限访问",
        "我有0元",
        "我住在",
        "我在那个",
        "我喜欢它",
        "我有一些",
        "我的名字是",
    ],
)
def test_a_fragment_is_no_memory(message: str) -> None:
    assert read_contents(message) == []


@each_of(
    "message, pattern",
    [
        ("I'm 70kg and 180cm tall", "70"),
        ("I don't have access to the staging server at work, ever", "staging"),
        ("I have $2000 saved for the trip to Japan", "2000|Japan"),
        ("I live in The Hague", "Hague"),
        ("My favourite band is The Who", "Who"),
        ("Ich wohne in der Eifel", "Eifel"),
        ("Mein Name ist Der", "Der"),
        ("J'habite au Mans", "Mans"),
        ("Vivo en El Puerto", "Puerto"),
        ("Moro no Porto", "Porto"),
    ],
)
def test_a_name_that_ends_like_a_fragment_is_learned(message: str, pattern: str) -> None:
    assert [content for content in read_contents(message) if re.search(pattern, content)]
