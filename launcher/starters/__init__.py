"""Who starts an agent on every machine where ``dtrun`` itself does not: a host file, Ray."""
