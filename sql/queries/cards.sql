-- name: place
-- The answer of turn $8 of some stretches of sessions, or (NULL) the last one, the newest of several; which question it answers.
-- $6 and $7 bound the months to open.
SELECT h.session_id, h.message_id, h.turn_index, h.sibling, (
    SELECT count(DISTINCT q.turn_index)
    FROM unnest($3::uuid[], $4::integer[], $5::integer[]) AS asked (session_id, low, high)
    JOIN agent_data.conversation_history q
      ON q.user_id = $2 AND q.session_id = asked.session_id AND q.turn_index > asked.low
     AND (asked.high IS NULL OR q.turn_index <= asked.high)
    WHERE q.tenant_id = $1 AND q.role = 1 AND q.turn_index <= h.turn_index AND q.created_at >= $6 AND q.created_at <= $7
)::integer AS question
FROM unnest($3::uuid[], $4::integer[], $5::integer[]) AS line (session_id, low, high)
JOIN agent_data.conversation_history h
  ON h.user_id = $2 AND h.session_id = line.session_id AND h.turn_index > line.low
 AND (line.high IS NULL OR h.turn_index <= line.high)
WHERE h.tenant_id = $1 AND h.role = 2 AND h.turn_index > 0 AND ($8::integer IS NULL OR h.turn_index = $8)
  AND h.created_at >= $6 AND h.created_at <= $7
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))
ORDER BY h.turn_index DESC, h.sibling DESC
LIMIT 1

-- name: places
-- Where these messages ($8) stand, and how many questions were asked up to each.
SELECT h.session_id, h.message_id, h.turn_index, h.sibling, (
    SELECT count(DISTINCT q.turn_index)
    FROM unnest($3::uuid[], $4::integer[], $5::integer[]) AS asked (session_id, low, high)
    JOIN agent_data.conversation_history q
      ON q.user_id = $2 AND q.session_id = asked.session_id AND q.turn_index > asked.low
     AND (asked.high IS NULL OR q.turn_index <= asked.high)
    WHERE q.tenant_id = $1 AND q.role = 1 AND q.turn_index <= h.turn_index AND q.created_at >= $6 AND q.created_at <= $7
)::integer AS question
FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = ANY ($8::uuid[]) AND h.created_at >= $6 AND h.created_at <= $7

-- name: questions
-- How many questions were asked in some stretches of sessions.
SELECT count(DISTINCT q.turn_index)::integer
FROM unnest($3::uuid[], $4::integer[], $5::integer[]) AS line (session_id, low, high)
JOIN agent_data.conversation_history q
  ON q.user_id = $2 AND q.session_id = line.session_id AND q.turn_index > line.low
 AND (line.high IS NULL OR q.turn_index <= line.high)
WHERE q.tenant_id = $1 AND q.role = 1 AND q.turn_index > 0 AND q.created_at >= $6 AND q.created_at <= $7

-- name: shown_with
-- The cards of one answer.
SELECT c.* FROM agent_data.ui_cards_shown c
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.session_id = $3 AND c.turn_index = $4 AND c.sibling = $5
ORDER BY c.display_order

-- name: of_messages
-- The cards of some answers, in their order.
SELECT c.* FROM agent_data.ui_cards_shown c
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.message_id = ANY ($3::uuid[])
ORDER BY c.turn_index, c.sibling, c.display_order

-- name: page
-- The cards of some stretches of sessions in their order, of one turn, place in it, question or type if these are named, after
-- ($10, $11, $12).
SELECT c.* FROM unnest($3::uuid[], $4::integer[], $5::integer[]) AS line (session_id, low, high)
JOIN agent_data.ui_cards_shown c
  ON c.user_id = $2 AND c.session_id = line.session_id AND c.turn_index > line.low
 AND (line.high IS NULL OR c.turn_index <= line.high)
WHERE c.tenant_id = $1 AND ($6::integer IS NULL OR c.turn_index = $6) AND ($7::integer IS NULL OR c.display_order = $7)
  AND ($8::integer IS NULL OR c.question = $8) AND ($9::text IS NULL OR c.card_type = $9)
  AND ($10::integer IS NULL OR (c.turn_index, c.sibling, c.display_order) > ($10, $11::integer, $12::integer))
ORDER BY c.turn_index, c.sibling, c.display_order
LIMIT $13

-- name: index
-- What some stretches of sessions showed, without the data: the newest $6 cards, newest first.
SELECT c.card_id, c.session_id, c.question, c.turn_index, c.sibling, c.display_order, c.card_type
FROM unnest($3::uuid[], $4::integer[], $5::integer[]) AS line (session_id, low, high)
JOIN agent_data.ui_cards_shown c
  ON c.user_id = $2 AND c.session_id = line.session_id AND c.turn_index > line.low
 AND (line.high IS NULL OR c.turn_index <= line.high)
WHERE c.tenant_id = $1
ORDER BY c.turn_index DESC, c.sibling DESC, c.display_order DESC
LIMIT $6

-- name: by_id
-- Cards by their ids.
SELECT c.* FROM agent_data.ui_cards_shown c
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.card_id = ANY ($3::uuid[])
ORDER BY c.turn_index, c.sibling, c.display_order

-- name: holding
-- The cards of a user that hold some data; see the function.
SELECT c.* FROM agent_data.find_cards($1, $2, $3, $4, $5, $6, $7) c

-- name: insert
-- Adds cards.
INSERT INTO agent_data.ui_cards_shown (
    card_id, user_id, tenant_id, session_id, turn_index, sibling, message_id, question, card_type, card_data, display_order,
    source, tool_call_id, source_message_id, token_count, shown_at)
SELECT r.card_id, $2, $1, r.session_id, r.turn_index, r.sibling, r.message_id, r.question, r.card_type, r.card_data,
       r.display_order, r.source, r.tool_call_id, r.source_message_id, r.token_count, r.shown_at
FROM jsonb_to_recordset($3::jsonb) AS r (
    card_id uuid, session_id uuid, turn_index integer, sibling smallint, message_id uuid, question integer, card_type text,
    card_data jsonb, display_order integer, source text, tool_call_id text, source_message_id uuid, token_count integer,
    shown_at timestamptz)

-- name: results
-- Of these messages ($8) the results of tools that no card was taken from yet, with the name of the tool: its own, or that of the
-- call before it that it answers.
SELECT h.message_id, h.tool_call_id, COALESCE(h.name, (
    SELECT call -> 'function' ->> 'name'
    FROM unnest($3::uuid[], $4::integer[], $5::integer[]) AS line (session_id, low, high)
    JOIN agent_data.conversation_history a
      ON a.user_id = $2 AND a.session_id = line.session_id AND a.turn_index > line.low
     AND (line.high IS NULL OR a.turn_index <= line.high)
    CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(a.tool_calls) WHEN 'array' THEN a.tool_calls ELSE '[]' END) AS call
    WHERE a.tenant_id = $1 AND a.role = 2 AND a.turn_index < h.turn_index AND a.turn_index >= h.turn_index - $9
      AND a.created_at >= $6 AND a.created_at <= $7 AND call ->> 'id' = h.tool_call_id
    ORDER BY a.turn_index DESC LIMIT 1)) AS tool
FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = ANY ($8::uuid[]) AND h.role IN (3, 4)
  AND h.created_at >= $6 AND h.created_at <= $7
  AND NOT EXISTS (SELECT FROM agent_data.ui_cards_shown c WHERE c.user_id = $2 AND c.source_message_id = h.message_id)
ORDER BY h.turn_index, h.sibling
