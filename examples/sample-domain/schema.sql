-- A business's own database, as seed 004 has it: customers, what they ordered, the work that this made, and the bills.
CREATE SCHEMA domain;

CREATE TABLE domain.customers (
    customer_id   text PRIMARY KEY,
    name          text NOT NULL,
    industry      text,
    status        text NOT NULL DEFAULT 'Active',
    payment_terms text,
    created_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON domain.customers (lower(name));

CREATE TABLE domain.contacts (
    contact_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id text NOT NULL REFERENCES domain.customers,
    full_name   text NOT NULL,
    email       text,
    role        text
);
CREATE INDEX ON domain.contacts (customer_id);

CREATE TABLE domain.products (
    sku   text PRIMARY KEY,
    name  text NOT NULL,
    price numeric(12, 2) NOT NULL,
    tags  text[] NOT NULL DEFAULT '{}'
);

CREATE TABLE domain.sales_orders (
    so_id        text PRIMARY KEY,
    customer_id  text NOT NULL REFERENCES domain.customers,
    sku          text REFERENCES domain.products,
    status       text NOT NULL,
    total_amount numeric(12, 2) NOT NULL,
    order_date   date NOT NULL
);
CREATE INDEX ON domain.sales_orders (customer_id, order_date);
CREATE INDEX ON domain.sales_orders (sku);

CREATE TABLE domain.invoices (
    invoice_id  text PRIMARY KEY,
    customer_id text NOT NULL REFERENCES domain.customers,
    amount      numeric(12, 2) NOT NULL,
    status      text NOT NULL,
    due_date    date
);
CREATE INDEX ON domain.invoices (customer_id, due_date);

CREATE TABLE domain.work_orders (
    wo_id       text PRIMARY KEY,
    so_id       text NOT NULL REFERENCES domain.sales_orders,
    invoice_id  text REFERENCES domain.invoices,
    status      text NOT NULL,
    assigned_to text
);
CREATE INDEX ON domain.work_orders (so_id);
CREATE INDEX ON domain.work_orders (invoice_id);

CREATE TABLE domain.payments (
    payment_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    invoice_id text NOT NULL REFERENCES domain.invoices,
    amount     numeric(12, 2) NOT NULL,
    method     text,
    paid_at    timestamptz NOT NULL
);
CREATE INDEX ON domain.payments (invoice_id);

COMMENT ON TABLE domain.work_orders IS 'Work that an order needs';
COMMENT ON COLUMN domain.customers.payment_terms IS 'NET15, NET30 …';
