-- Deliveries are claimed workspace by workspace in turn, and within one host by host.
alter table delivery add column workspace text not null default '';
update delivery set workspace = coalesce((select workspace from task where key = delivery.task), '');
drop index delivery_due;
create index delivery_due on delivery (workspace, host, at) where sent < last;
