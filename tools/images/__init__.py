"""Builds the images of headrace, from the Dockerfiles in the clone: ``make images``.

Docker where an engine answers, buildah elsewhere; a base image that no registry gives is made from
Debian packages. Nothing of the machine that builds stays in an image.
"""
