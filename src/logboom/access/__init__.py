"""Who somebody is and what he may do, without input or output: names, secrets, SCRAM, rules and what they decide."""
