"""One machine's ranks: started, heard, watched, ended; and what is said of them."""
