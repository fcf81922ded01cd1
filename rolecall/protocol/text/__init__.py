"""Values as text: JSON, members of documents, timestamps, origins of web pages."""
