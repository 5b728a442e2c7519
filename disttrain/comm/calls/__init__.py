"""A call of a group: its header, work and reduction; what every transport promises."""
