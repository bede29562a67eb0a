"""What users tell memory to do in chats is done (`commander`, which the composition root of the server finds by its name)."""
