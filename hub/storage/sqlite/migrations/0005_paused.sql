-- The paused tasks of each worker. Other tasks are not in it.
create index task_paused on task (workspace, worker, epoch, id) where state in ('auth-required', 'input-required');

-- The newest ended lease of each name: where its worker was, for tasks that are paused there. Old ones without such tasks are
-- deleted together with the changes of the feed.
create table ended_lease (
  workspace text not null,
  role      text not null,
  instance  text not null,
  epoch     integer not null,
  boot      text not null,
  offer     text not null,
  withdrawn integer not null,
  revision  integer not null,
  primary key (workspace, role, instance)
) strict;

create index ended_lease_oldest on ended_lease (revision);
