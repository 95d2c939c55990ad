"""Views: what the pages show, made of what operations return; no store, no request, no clock."""
