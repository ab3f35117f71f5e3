# Asks the program itself, and through it the daemon for the names of NICs, switches and VFs.
source <(COMPLETE=bash hypernic)
