"""What has become of the servers behind a gateway since its file was written."""
