"""Networks in numpy: rows and batches, limits, and weights that must not be acted from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.policy.activations import ACTIVATIONS, activation
from ospbridge.policy.numpy_module import NumpyModule
from tests.policy.weights import SHARED, dense, module_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANDOM = np.random.default_rng(3)
OBSERVATIONS = RANDOM.normal(size=(7, 4)).astype(np.float32)


def made(
    weights: dict[str, NDArray[Any]], *, outputs: int = 2, gaussian: bool = False, **how: str
) -> NumpyModule:
    return NumpyModule(weights, inputs=4, outputs=outputs, gaussian=gaussian, **how)


def test_the_weights_are_copied() -> None:
    weights = module_weights()
    module = made(weights)
    before = module.forward(OBSERVATIONS)
    for array in weights.values():
        array[:] = 0.0
    assert np.array_equal(module.forward(OBSERVATIONS), before)


@pytest.mark.parametrize("key", [key for key in module_weights() if "mlp" in key])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused_and_those_before_stay(key: str, value: float) -> None:
    module = made(module_weights())
    before = module.forward(OBSERVATIONS)
    weights = module_weights(seed=2)
    weights[key].flat[1] = value
    with pytest.raises(ConfigurationError, match=f"1 of {weights[key].size} numbers of '{key}' are NaN"):
        module.load(weights)
    assert np.array_equal(module.forward(OBSERVATIONS), before)
    assert np.abs(module.forward_row(OBSERVATIONS[0]) - before[0]).max() < 1e-5


@pytest.mark.parametrize("dtype", [np.int64, np.complex64, object, "U4"])
def test_weights_that_are_no_floating_numbers_are_refused(dtype: Any) -> None:
    weights: dict[str, NDArray[Any]] = {**module_weights()}
    weights["pi.net.mlp.0.bias"] = np.zeros(2).astype(dtype)
    with pytest.raises(ConfigurationError, match=r"'pi\.net\.mlp\.0\.bias' is of .*, expected float32"):
        made(weights)


# --- a Gaussian's deviations ----------------------------------------------------------------------------------------


# --- activations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "linear"])
def test_no_activation_overflows_or_warns(name: str) -> None:
    function = activation(name)
    assert function is not None
    x = np.array([-1e30, -1e4, -89.0, 0.0, 89.0, 1e4], np.float32)
    with np.errstate(all="raise", under="ignore"):
        function(x)
    assert np.isfinite(x).all()


def test_an_activation_is_refused_where_the_keys_show_that_there_is_none() -> None:
    weights = module_weights(4, (8,)) | dense(RANDOM, f"{SHARED}net.mlp.1.", 8, 8)
    made(weights, activation="linear")
    with pytest.raises(
        ConfigurationError, match=r"no activation behind '.*mlp\.0\.weight', but activation is 'tanh'"
    ):
        made(weights)


def test_linear_is_refused_where_the_keys_show_an_activation() -> None:
    with pytest.raises(
        ConfigurationError, match=r"an activation behind .*, but activation is 'linear'"
    ) as caught:
        made(module_weights(), activation="linear")
    assert "fcnet_activation" in caught.value.hint
