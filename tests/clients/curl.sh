#!/usr/bin/env bash
# Plain curl: what is sent and what comes back, as it is.
set -u

tell() { printf '{"scenario": "%s", "result": %s}\n' "$1" "$2"; }
python() { command python3 -I -c "$@"; }

# post SCENARIO BODY [curl's arguments …]
post() {
  local scenario=$1 body=$2
  shift 2
  curl -sS -H 'Content-Type: application/json' -H 'Authorization: Bearer sk-test' \
    -H "X-Mneme-User: $USER_PREFIX-$scenario" -H "X-Mneme-Label: $USER_PREFIX" --data-binary "$body" "$@"
}

ask() { printf '{"model": "%s", "messages": [{"role": "user", "content": "%s"}]%s}' "$1" "$2" "${3:-}"; }
content='import json,sys; print(json.dumps(json.load(sys.stdin)["choices"][0]["message"]["content"]))'
chat="$BASE_URL/chat/completions"

tell chat "$(post chat "$(ask text hi)" "$chat" | python "$content")"

tell stream "$(post stream "$(ask text hi ', "stream": true')" -N "$chat" | python '
import json, sys
events = [line[6:] for line in sys.stdin.read().split("\n\n") if line.startswith("data: {")]
pieces = [p for p in (json.loads(e)["choices"][0]["delta"].get("content") for e in events) if p]
print(json.dumps({"text": "".join(pieces), "pieces": len(pieces)}))')"

tools=', "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]'
tell tools "$(post tools "$(ask tools 'weather?' "$tools")" "$chat" | python '
import json, sys
calls = json.load(sys.stdin)["choices"][0]["message"]["tool_calls"]
print(json.dumps([[c["function"]["name"], json.loads(c["function"]["arguments"])] for c in calls]))')"

form=', "response_format": {"type": "json_object"}'
tell structured "$(post structured "$(ask json 'cat?' "$form")" "$chat" | python '
import json, sys
print(json.load(sys.stdin)["choices"][0]["message"]["content"])')"

tell error "$(post error "$(ask error-429 hi)" -w '\n%{http_code}' "$chat" | python '
import json, sys
body, status = sys.stdin.read().rsplit("\n", 1)
print(json.dumps({"status": int(status), "message": json.loads(body)["error"]["message"]}))')"

post timeout "$(ask never hi)" --max-time 1 "$chat" 2> /dev/null
tell timeout "$([ $? -eq 28 ] && echo true || echo false)"

tell abort "$(post abort "$(ask stall hi ', "stream": true')" -N --max-time 2 "$chat" 2> /dev/null | python '
import json, sys
first = next(line for line in sys.stdin if line.startswith("data: {"))
print(json.dumps(json.loads(first[6:])["choices"][0]["delta"]["content"]))')"

turns='[]'
for text in 'Question 1' 'Question 2' 'Question 3'; do
  turns=$(python 'import json,sys; print(json.dumps([*json.loads(sys.argv[1]), {"role": "user", "content": sys.argv[2]}]))' \
    "$turns" "$text")
  turns=$(post turns "{\"model\": \"text\", \"messages\": $turns}" "$chat" | python '
import json, sys
print(json.dumps([*json.loads(sys.argv[1]), json.load(sys.stdin)["choices"][0]["message"]]))' "$turns")
done
tell turns "$(python 'import json,sys; print(len(json.loads(sys.argv[1])))' "$turns")"

count=0
for text in 'Question 1' 'Question 2' 'Question 3'; do
  post session "$(ask text "$text")" -H 'X-Mneme-Session: mine' "$chat" > /dev/null && count=$((count + 1))
done
tell session "$count"

parts='[{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]'
tell image "$(post image "{\"model\": \"text\", \"messages\": [{\"role\": \"user\", \"content\": $parts}]}" "$chat" | python "$content")"

first=$(post responses '{"model": "text", "input": "Question 1"}' "$BASE_URL/responses")
follows=$(printf '%s' "$first" | python 'import json,sys; print(json.load(sys.stdin)["id"])')
body="{\"model\": \"text\", \"input\": \"Question 2\", \"previous_response_id\": \"$follows\"}"
tell responses "$(post responses "$body" "$BASE_URL/responses" | python '
import json, sys
found = (json.loads(sys.argv[1]), json.load(sys.stdin))
print(json.dumps([each["output"][0]["content"][0]["text"] for each in found]))' "$first")"
