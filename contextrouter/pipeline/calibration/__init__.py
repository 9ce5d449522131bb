"""Score calibration (step 7): the scores of all sources on one scale."""
