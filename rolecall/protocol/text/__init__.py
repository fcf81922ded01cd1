"""Values as text: JSON, members of documents, timestamps."""
