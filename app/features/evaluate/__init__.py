"""What `mneme eval` measures (`measure`): how much of what answers a question is found. The command makes what is asked."""
