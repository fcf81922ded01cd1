"""`--reload`: which files a program is made of, whether what was changed loads, and its replacement."""
