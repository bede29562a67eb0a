-- A role that can read the business's tables and write nothing. Run it in the business's database, with a password of your own. Each server
-- process and each worker opens up to four connections.
CREATE ROLE mneme_reader LOGIN PASSWORD 'change-me' CONNECTION LIMIT 20;
ALTER ROLE mneme_reader SET default_transaction_read_only = on;
GRANT USAGE ON SCHEMA domain TO mneme_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA domain TO mneme_reader;
