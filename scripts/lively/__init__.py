"""Lively data: a database as an online shop would have it after a bad deploy, half an hour ago.

Screenshots, browser tests and people who want to see the dashboard with something in it use it. The past is
written by SQL; what runs now is run by real workers. The same seed gives the same data, relative to now.
"""
