-- The receiver gets sequence numbers: its config was set with the sequence extension.
alter table push_config add column numbers integer not null default 0;
