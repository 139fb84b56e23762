"""docs/frameworks.md: the Trainer of transformers."""

import datasetd
import numpy as np
import pytest
import torch
import transformers
from conftest import NUM_SAMPLES
from datasetd import transforms as T


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_resume(page, ranks):
    # It saves after each third step; an epoch has 13, or 7 on each of 2 ranks.
    _, batches = page.expect_exact_resume(
        "Hugging Face Trainer", checkpoint=(1, 2), kill=(1, 4), ranks=ranks
    )
    batches.expect_each_sample_once(num_epochs=2, world_size=ranks)


class _Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 32 * 32, 10)

    def forward(self, image, label):
        logits = self.layer(image.flatten(1))
        loss = torch.nn.functional.cross_entropy(logits, label)
        return {"loss": loss, "logits": logits}


def test_evaluate_and_predict(dataset, tmp_path):
    with datasetd.DataLoader(
        dataset, 32, transforms=[T.ToDtype("float32", scale=True)]
    ) as loader:

        class Trainer(transformers.Trainer):
            def get_eval_dataloader(self, eval_dataset=None):
                return loader.as_torch()

            get_test_dataloader = get_eval_dataloader

        model = _Model()
        trainer = Trainer(
            model,
            transformers.TrainingArguments(
                str(tmp_path), use_cpu=True, report_to=[], label_names=["label"]
            ),
            compute_metrics=lambda result: {"count": len(result.label_ids)},
        )
        assert trainer.evaluate()["eval_count"] == NUM_SAMPLES
        predicted = trainer.predict(None)
        whole = loader.fetch(range(NUM_SAMPLES))
        with torch.no_grad():
            logits = model(**whole)["logits"]
    np.testing.assert_array_equal(predicted.label_ids, whole.label)
    np.testing.assert_allclose(
        predicted.predictions, logits, rtol=1e-4, atol=1e-6
    )
