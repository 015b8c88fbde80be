#!/bin/sh
# The task archive_invoice: any executable file is a task, and this one needs no Python.
# Standard input is the job's payload as JSON; the environment has the rest of the job.
set -eu

folder=${SHOP_ARCHIVE:-archive}
file="$folder/$GRAPHILE_WORKER_JOB_KEY.json.gz"

mkdir -p "$folder"
gzip -c > "$file.part"
mv "$file.part" "$file" # at once, so that an interrupted attempt leaves no half of a file
echo "stored $file"
