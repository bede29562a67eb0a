"""The helper LLM (`client`, which `app.providers.helper` finds by its name), and what it learns from turns (`extract`)."""
