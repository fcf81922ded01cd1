-- Tasks that other tasks have started. `roles` are those above, joined by a space; `root` and `parent` are ids of tasks.
create table branch (
  task     integer primary key,
  parent   text not null,
  root     text not null,
  roles    text not null,
  deadline real,
  goes_on  integer not null
) strict;
create index branch_root on branch (root);
create trigger branch_of_task after delete on task begin
  delete from branch where task = old.key;
end;
