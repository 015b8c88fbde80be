"""Charts as SVG, made on the server: functions for templates that return safe markup.

    {{ charts.sparkline(values, label="Ready jobs in the last hour") }}
    {{ charts.time_chart(series, start=start, step=60, label="Jobs per minute", zone=zone) }}

Every text is escaped and everything else is a number. There are no style attributes, because the content
security policy forbids them: colours are classes (`c1` to `c6`, `c-fail`, `c-idle`), and CSS is in
`static/charts.css`. Text keeps its size on a phone: only the plot is stretched.

For the script that shows values under the pointer, a chart has `data-start`, `data-step`, `data-zone` and
`data-unit`, and each line of it `data-name` and `data-values` (comma-separated; empty if unknown).
"""

from .drawing import bars as bars
from .drawing import histogram as histogram
from .drawing import outcomes as outcomes
from .drawing import slots as slots
from .drawing import sparkline as sparkline
from .drawing import time_chart as time_chart
from .geometry import ChartSeries as ChartSeries
from .geometry import Colour as Colour
