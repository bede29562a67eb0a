// OpenAI's and Anthropic's SDKs for Node on a session with two long results, and a question about the older one.
import { BASE_URL, KEY, headers, load, run } from './scenarios.mjs';

const openai = await load('openai');
const anthropic = await load('@anthropic-ai/sdk');
const OpenAI = openai.default?.OpenAI ?? openai.OpenAI ?? openai.default;
const Anthropic = anthropic.default?.Anthropic ?? anthropic.Anthropic ?? anthropic.default;

const QUESTION = 'Which limit does worker_119 have?';
const SCHEMA = { type: 'object', properties: { cluster: { type: 'string' } } };
const LISTINGS = ['worker', 'runner'].map((what) =>
  Array.from({ length: 120 }, (_, n) => `${what}_${n}: queue ${n * 7}, host node-${(n * 13) % 97}, limit ${n + 1000}`).join('\n'),
);
const paged = (scenario) => ({ ...headers(scenario), 'X-Mneme-Paging': 'on' });

// --- chat completions ------------------------------------------------------------------------------------------------------

const chats = (scenario) => new OpenAI({ baseURL: BASE_URL, apiKey: KEY, maxRetries: 0, defaultHeaders: paged(scenario) });
const tools = [{ type: 'function', function: { name: 'list_workers', parameters: SCHEMA } }];

function chatTranscript(question = QUESTION) {
  const messages = [{ role: 'user', content: 'Look at the workers.' }];
  LISTINGS.forEach((content, n) => {
    const call = { name: 'list_workers', arguments: JSON.stringify({ cluster: `c${n}` }) };
    messages.push({ role: 'assistant', content: null, tool_calls: [{ id: `call_${n}`, type: 'function', function: call }] });
    messages.push({ role: 'tool', tool_call_id: `call_${n}`, content });
  });
  return [...messages, { role: 'assistant', content: 'Seen.' }, { role: 'user', content: question }];
}

const chatAsked = (messages = chatTranscript()) => ({ model: 'm', tools, messages });
const chatTold = ({ choices: [choice] }) => ({
  text: choice.message.content,
  calls: (choice.message.tool_calls ?? []).map((each) => [each.function.name, each.function.arguments]),
  stop: choice.finish_reason,
});

// --- messages --------------------------------------------------------------------------------------------------------------

const messages = (scenario) =>
  new Anthropic({ baseURL: BASE_URL.replace(/\/v1$/, ''), apiKey: KEY, maxRetries: 0, defaultHeaders: paged(scenario) });

function transcript(question = QUESTION) {
  const said = [{ role: 'user', content: 'Look at the workers.' }];
  LISTINGS.forEach((content, n) => {
    said.push({ role: 'assistant', content: [{ type: 'tool_use', id: `call_${n}`, name: 'list_workers', input: { cluster: `c${n}` } }] });
    said.push({ role: 'user', content: [{ type: 'tool_result', tool_use_id: `call_${n}`, content }] });
  });
  return [...said, { role: 'assistant', content: 'Seen.' }, { role: 'user', content: question }];
}

const asked = (said = transcript()) => ({
  model: 'm', max_tokens: 200, tools: [{ name: 'list_workers', input_schema: SCHEMA }], messages: said,
});
const told = (message) => ({
  text: message.content.filter((each) => each.type === 'text').map((each) => each.text).join(''),
  calls: message.content.filter((each) => each.type === 'tool_use').map((each) => [each.name, JSON.stringify(each.input)]),
  stop: message.stop_reason,
});

await run({
  'chat-whole': async () => chatTold(await chats('chat-whole').chat.completions.create(chatAsked())),
  'chat-stream': async () => {
    const events = chats('chat-stream').chat.completions.stream(chatAsked());
    const heard = [];
    events.on('content', (piece) => heard.push(piece));
    const made = chatTold(await events.finalChatCompletion());
    return { ...made, heard: heard.join('') };
  },
  'chat-chunks': async () => {
    let text = '';
    const ids = new Set();
    for await (const chunk of await chats('chat-chunks').chat.completions.create({ ...chatAsked(), stream: true })) {
      ids.add(chunk.id);
      text += chunk.choices[0]?.delta?.content ?? '';
    }
    return { text, ids: ids.size };
  },
  // A call of the client's own, and its result, a turn later.
  'chat-tools': async () => {
    const made = chats('chat-tools');
    const said = chatTranscript('Compare both, please.');
    const first = await made.chat.completions.stream(chatAsked(said)).finalChatCompletion();
    const [{ message }] = first.choices;
    said.push(message, ...message.tool_calls.map((each) => ({ role: 'tool', tool_call_id: each.id, content: 'limit 7' })));
    return { first: chatTold(first), last: chatTold(await made.chat.completions.create(chatAsked(said))) };
  },
  'messages-whole': async () => told(await messages('messages-whole').messages.create(asked())),
  'messages-stream': async () => {
    const events = messages('messages-stream').messages.stream(asked());
    const heard = [];
    events.on('text', (piece) => heard.push(piece));
    const made = told(await events.finalMessage());
    return { ...made, heard: heard.join('') };
  },
  'messages-tools': async () => {
    const made = messages('messages-tools');
    const said = transcript('Compare both, please.');
    const first = await made.messages.stream(asked(said)).finalMessage();
    const results = first.content
      .filter((each) => each.type === 'tool_use')
      .map((each) => ({ type: 'tool_result', tool_use_id: each.id, content: 'limit 7' }));
    said.push({ role: 'assistant', content: first.content }, { role: 'user', content: results });
    return { first: told(first), last: told(await made.messages.create(asked(said))) };
  },
});
