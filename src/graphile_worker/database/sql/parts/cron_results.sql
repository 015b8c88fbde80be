-- End of the statements that add the recurring jobs of one minute. The variant `registered` also notes the runs.
select added.identifier, added.job_id from added order by added.position
