"""Problems, the runner, judge and reward. Imports inference and configs."""
