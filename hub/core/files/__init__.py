"""Files by reference: who may upload, read and delete one, how its bytes come and go, and how long it is kept."""
