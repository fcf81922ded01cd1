"""Values as text: JSON, its members one by one, timestamps."""
