"""What users state in other languages than English is learned (`statements`, which `app.memory.extract` finds by its name)."""
