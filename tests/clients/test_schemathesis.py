# SPDX-License-Identifier: Apache-2.0
"""A thousand requests made up from /openapi.json: no 5xx, no status and no answer that is not described."""
import longwave_server
import schemathesis_run


def test_made_up_requests(tmp_path):
    model = longwave_server.make_tiny_model(tmp_path / "tiny.gguf", "context=512")
    server = longwave_server.Server(model, *schemathesis_run.SERVER_OPTIONS, "--session-dir", str(tmp_path))
    try:
        status, report, answers = schemathesis_run.run(server.port, 100, "--phases", "fuzzing", "--seed", "1", timeout=600)
        print(report, answers)
        assert status == 0, report
        assert sum(answers.values()) >= 1000 and answers[200] >= 100, answers
        assert not [code for code in answers if code >= 500 and code != 504], answers
    finally:
        assert server.stop() == 0
