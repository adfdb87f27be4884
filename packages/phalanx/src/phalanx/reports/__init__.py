"""What operators ask of a cluster, judged and as plain objects: the command line prints it, the HTTP port serves it."""
