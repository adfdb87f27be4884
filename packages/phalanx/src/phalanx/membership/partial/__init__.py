"""Members that cannot reach each other although both are well."""
