"""The server of RLlink that the installed Ray brings, and one that writes down what reaches it.

Classes of a module, because newer servers send a client the pickle of their whole configuration, the class included.
"""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import ray
import torch
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

__all__ = ["Runner", "Telling"]

Runner: Any
if ray.__version__.startswith(("2.47.", "2.48.")):
    from ray.rllib.env.tcp_client_inference_env_runner import TcpClientInferenceEnvRunner

    class Mended(TcpClientInferenceEnvRunner):  # type: ignore[misc]  # Ray says no types
        """Mended in two places, which are the server's and not its client's."""

        def _send_set_state_message(self) -> None:
            legacy = functools.partial(torch.onnx.export, dynamo=False)
            with mock.patch.object(torch.onnx, "export", legacy):
                super()._send_set_state_message()

        def _process_episodes_message(self, msg_type: Any, msg_body: Any) -> None:
            for episode in msg_body["episodes"]:
                episode["actions"] = [
                    np.asarray(action, np.float32) if isinstance(action, list) else action
                    for action in episode["actions"]
                ]
            super()._process_episodes_message(msg_type, msg_body)

    Runner = Mended

    def decided(episode: Any) -> tuple[Any, Any]:
        """The observations of an episode as it came, and the outputs that decided it."""
        return episode["obs"], episode["action_dist_inputs"]

else:
    from ray.rllib.env.external.env_runner_server_for_external_inference import (
        EnvRunnerServerForExternalInference,
    )

    Runner = EnvRunnerServerForExternalInference

    def decided(episode: Any) -> tuple[Any, Any]:
        """The observations of an episode as it came, and the outputs that decided it."""
        read = SingleAgentEpisode.from_state(episode).to_numpy()
        return read.get_observations(), read.get_extra_model_outputs("action_dist_inputs")


class Telling(Runner):  # type: ignore[misc]  # Ray says no types
    """Appends a JSON line to the file ``env_config["told"]`` for each batch that comes, and for each that is sampled.

    ``apart``: the largest difference between the outputs that decided a batch and those of the runner's own weights.
    ``env_config["hesitate"]``: seconds before a state without newer weights is set, as RLlib does again after each
    iteration. They lengthen the moment in which a client is answered with old weights.
    """

    def _tell(self, **what: Any) -> None:
        line = json.dumps({"runner": self.worker_index, "weights_seq_no": self._weights_seq_no, **what})
        with Path(self.config.env_config["told"]).open("a") as told:
            told.write(line + "\n")

    def _process_episodes_message(self, msg_type: Any, msg_body: Any) -> None:
        found = [decided(episode) for episode in msg_body["episodes"]]
        apart = max((self._apart(*each) for each in found), default=None)
        self._tell(came=sum(len(outputs) for _, outputs in found), apart=apart, kind=msg_type.name)
        super()._process_episodes_message(msg_type, msg_body)

    def _apart(self, observations: Any, outputs: Any) -> float:
        before = torch.from_numpy(np.array(observations[:-1], np.float32))
        with torch.no_grad():
            ours = self.module.forward_inference({"obs": before})["action_dist_inputs"].numpy()
        return float(np.abs(ours - np.asarray(outputs)).max())

    def sample(self, **options: Any) -> Any:
        episodes = super().sample(**options)
        self._tell(sampled=sum(map(len, episodes)))
        return episodes

    def set_state(self, state: Any) -> None:
        if self._weights_seq_no and state.get("weights_seq_no", 0) in (0, self._weights_seq_no):
            time.sleep(self.config.env_config["hesitate"])
        super().set_state(state)
