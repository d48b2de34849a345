"""What a flow needs of both clusters - rights, settings, topics - and what is missing."""
