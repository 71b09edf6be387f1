# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Parts of gpu.py that measure single steps."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from device_peaks import peak_speed
from gpu_attempts import OUT_OF_MEMORY, attempt
from gpu_figures import Failure, Outcome, Row
from gpu_setting import Network, Setting
from measure import Cost, cost_of, name_of
from reference_step import ReferenceStep
from sections import WHOLE, count_flops, product_speed, time_sections
from training_step import TrainingStep

DTYPE_ORDER = ('bf16', 'fp16', 'fp32')


def table_of(network: Network) -> str:
    """Title of the table of a network's steps."""
    return f'{network.title}, batch {network.batch}'


def measure_step(
    setting: Setting, make: Callable[[], TrainingStep]
) -> dict[str, object]:
    """Columns of a step's row."""
    built, sizes = make(), setting.sizes
    cost = cost_of(lambda: built, setting.device, sizes.repeats, sizes.warm_up)
    flops = count_flops(built)
    speed = flops / cost.seconds
    peak = peak_speed(name_of(setting.device), built.dtype)
    ceiling = peak or product_speed(
        setting.device, built.dtype, sizes.repeats, sizes.side
    )
    return {
        'img/s': built.batch_size / cost.seconds,
        'ms': cost.seconds * 1e3,
        'peak GiB': cost.peak / 1024,
        'of it the step': cost.mebibytes / 1024,
        'TFLOP/s': speed / 1e12,
        'GFLOP an image': flops / built.batch_size / 1e9,
        'MFU %': 100 * speed / ceiling,
        'first step, s': cost.first,
    }


def step_rows(
    setting: Setting, network: Network, forms: Iterable[tuple[str, bool]]
) -> Iterator[Outcome]:
    """Rows of a network's steps, by precision and whether compiled."""
    table = table_of(network)
    for dtype, compiled in forms:
        form = 'compiled' if compiled else 'eager'
        if compiled and setting.left() < setting.sizes.compile_seconds:
            yield f'{table}, {dtype}, {form}: left out for want of time.'
            continue
        make = setting.step(network, dtype, compiled)
        values = attempt(
            f'{table}, {dtype}, {form}', partial(measure_step, setting, make)
        )
        if isinstance(values, Failure):
            yield values
            continue
        if values == OUT_OF_MEMORY:
            values = {'img/s': values}
        yield Row(table, dict(precision=dtype, form=form) | values)


def step(setting: Setting) -> Iterator[Outcome]:
    """The base network: compiled in bf16, and eager in all precisions."""
    forms = [('bf16', True), *((dtype, False) for dtype in DTYPE_ORDER)]
    yield from step_rows(setting, setting.sizes.base, forms)


def large(setting: Setting) -> Iterator[Outcome]:
    """The large network, eager in bf16."""
    yield from step_rows(setting, setting.sizes.large, [('bf16', False)])


def compiled(setting: Setting) -> Iterator[Outcome]:
    """What else is compiled: the other precisions, the large network."""
    sizes = setting.sizes
    yield from step_rows(setting, sizes.large, [('bf16', True)])
    others = [(dtype, True) for dtype in sizes.compiled_dtypes[1:]]
    if others:
        yield from step_rows(setting, sizes.base, others)


def reference(setting: Setting) -> Iterator[Outcome]:
    """Whole steps against the authors', at the same batch."""
    sizes, network = setting.sizes, setting.sizes.base
    for dtype in DTYPE_ORDER[:2]:
        step_of = partial(setting.step, network, dtype)
        forms = {
            'authors, fused attention': step_of(kind=ReferenceStep),
            'authors, attention by products': step_of(
                kind=ReferenceStep, attention='products'
            ),
            'ours, eager': step_of(),
        }
        first = None
        for form, make in forms.items():
            measure = partial(
                cost_of, make, setting.device, sizes.repeats, sizes.warm_up
            )
            cost = attempt(f'{dtype}, {form}', measure)
            if isinstance(cost, Failure):
                yield cost
                continue
            values = {'precision': dtype, 'form': form}
            if isinstance(cost, Cost):
                first = first or cost
                values |= {
                    'img/s': network.batch / cost.seconds,
                    'against the first': first.seconds / cost.seconds,
                    'step GiB': cost.mebibytes / 1024,
                    'memory against it': cost.mebibytes / first.mebibytes,
                }
            else:
                values['img/s'] = cost
            title = f"Against the authors' step, {table_of(network)}"
            yield Row(title, values)


def largest_batch(setting: Setting) -> Iterator[Outcome]:
    """The largest batch of the base network that fits, in bf16."""
    network = setting.sizes.base
    built = setting.step(network, 'bf16')()

    def fits(size: int) -> bool:
        """Whether two steps find memory; the first makes the moments."""
        built.take_batch(size)

        def steps() -> None:
            built()
            built()

        result = attempt(f'batch {size}', steps)
        built.wrapper.zero_grad()
        if isinstance(result, Failure):
            raise RuntimeError(result.error)
        return result != OUT_OF_MEMORY

    found = search_largest(
        fits,
        *(network.batch, setting.sizes.most_images, setting.sizes.resolution),
    )
    if not found:
        yield 'No batch fits.'
        return
    if found + setting.sizes.resolution > setting.sizes.most_images:
        yield f'The search ended at {setting.sizes.most_images} images.'
    built.take_batch(found)
    values = attempt(
        f'batch {found}', partial(measure_step, setting, lambda: built)
    )
    if isinstance(values, Failure):
        yield values
        return
    if values == OUT_OF_MEMORY:  # as little as was left
        values = {'img/s': values}
    row = dict(batch=found, precision='bf16', form='eager')
    yield Row(f'{network.title}, the largest batch that fits', row | values)


def search_largest(
    fits: Callable[[int], bool], first: int, most: int, resolution: int
) -> int:
    """The largest size that fits, to a resolution; 0 if none does.

    Doubles from ``first``, then halves the interval.

    Args:
        fits (Callable): Whether a size fits.
        first (int): Where to start, a multiple of ``resolution``.
        most (int): The largest size to try.
        resolution (int): Sizes are multiples of it.

    Returns:
        int: The size.
    """
    low, high = 0, first
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + resolution)
    while high - low > resolution:
        middle = (low + high) // 2 // resolution * resolution
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def sections(setting: Setting) -> Iterator[Outcome]:
    """Where the time of a step goes, eager in bf16."""
    network = setting.sizes.base
    built = setting.step(network, 'bf16')()
    for _ in range(setting.sizes.warm_up):
        built()
    times = time_sections(built, setting.sizes.repeats, compiled=False)
    for name, seconds in times.items():
        yield Row(
            f'Sections, {table_of(network)}, bf16, eager',
            {
                'section': name,
                'ms': seconds * 1e3,
                '%': 100 * seconds / times[WHOLE],
            },
        )
