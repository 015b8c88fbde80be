"""Findings of the doctor, maintenance, and what the dashboard runs on."""
