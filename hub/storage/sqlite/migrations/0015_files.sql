-- Files: their bytes are beside the database. `length` is null as long as it is unknown, `sha256` empty as long as bytes are missing.
-- `tasks`: how many tasks have it; `changed`: when its last bytes came, 0 when its last task is gone.
create table file (
  key        integer primary key,
  id         text not null unique,
  workspace  text not null,
  caller     text not null,
  name       text not null,
  media_type text not null,
  length     integer,
  stored     integer not null,
  sha256     text not null,
  changed    real not null,
  tasks      integer not null default 0,
  lost       integer not null default 0
) strict;
create index file_unused on file (changed) where tasks = 0 or sha256 = '';
create index file_of_owner on file (workspace, caller) where tasks = 0;

create table task_file (
  file integer not null,
  task integer not null,
  primary key (file, task)
) strict, without rowid;
create index task_file_of on task_file (task, file);
