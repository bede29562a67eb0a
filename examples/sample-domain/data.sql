-- The figures of seed 004's worked example, and "Gail Industries", which "Gai" may mean as well.
INSERT INTO domain.customers (customer_id, name, industry, status, payment_terms, created_at) VALUES
    ('gai_123', 'Gai Media Entertainment', 'Entertainment', 'Active', 'NET15', '2023-02-01 09:00+00'),
    ('gail_456', 'Gail Industries', 'Manufacturing', 'Active', 'NET30', '2023-05-11 09:00+00'),
    ('del_789', 'Delta Logistics', 'Transport', 'On hold', NULL, '2024-01-20 09:00+00');

INSERT INTO domain.contacts (customer_id, full_name, email, role) VALUES
    ('gai_123', 'Priya Sharma', 'priya@gaimedia.example', 'Buyer'),
    ('gai_123', 'Tom Okafor', 'tom@gaimedia.example', 'Accounts payable'),
    ('gail_456', 'Maria Lindqvist', 'maria@gail.example', 'Buyer');

INSERT INTO domain.products (sku, name, price, tags) VALUES
    ('LED-PANEL', 'LED Wall Panel', 350, '{stage,video}'),
    ('PA-SET', 'PA System', 2200, '{stage,audio}'),
    ('CRATE-L', 'Flight Crate L', 120.50, '{}');

INSERT INTO domain.sales_orders (so_id, customer_id, sku, status, total_amount, order_date) VALUES
    ('SO-1001', 'gai_123', 'CRATE-L', 'fulfilled', 1205, '2024-07-03'),
    ('SO-1045', 'gai_123', 'LED-PANEL', 'fulfilled', 3500, '2024-09-15'),
    ('SO-1052', 'gai_123', 'PA-SET', 'in_fulfillment', 2200, '2024-09-22'),
    ('SO-1060', 'gail_456', 'CRATE-L', 'fulfilled', 241, '2024-09-18');

INSERT INTO domain.invoices (invoice_id, customer_id, amount, status, due_date) VALUES
    ('INV-2001', 'gai_123', 1205, 'paid', '2024-07-20'),
    ('INV-2045', 'gai_123', 3500, 'open', '2024-10-01');

INSERT INTO domain.work_orders (wo_id, so_id, invoice_id, status, assigned_to) VALUES
    ('WO-501', 'SO-1045', 'INV-2045', 'done', 'Ravi'),
    ('WO-502', 'SO-1045', 'INV-2045', 'done', 'Elena'),
    ('WO-503', 'SO-1052', NULL, 'in_progress', 'Ravi');

INSERT INTO domain.payments (invoice_id, amount, method, paid_at) VALUES
    ('INV-2001', 1205, 'transfer', '2024-07-18 14:30+00');
