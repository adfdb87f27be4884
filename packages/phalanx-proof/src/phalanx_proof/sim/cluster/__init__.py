"""The simulated cluster: virtual time, hosts and their clocks, the network between them, and faults. It knows no rule of the protocol."""
