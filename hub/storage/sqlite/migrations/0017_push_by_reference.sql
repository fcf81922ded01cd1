-- The receiver gets files by reference: its config was set with the files extension.
alter table push_config add column by_reference integer not null default 0;
